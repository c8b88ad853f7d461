"""Readers of robomimic's HDF5 and LIBERO's: one file per task, actions of `OSC_POSE` of robosuite.

Layout of robomimic (Mandlekar et al., 2021): `data/demo_<i>` with `actions` (T, A), `rewards`,
`states` and `obs/<key>`; `data.attrs["env_args"]` describes the environment. Images are
`obs/<camera>_image`, depth is `obs/<camera>_depth`, poses are `obs/robot<i>_eef_pos` and
`obs/robot<i>_eef_quat` (x y z w), fingers `obs/robot<i>_gripper_qpos`. Masks become attributes;
`valid` holds episodes out. Some files contain the calibration of the cameras (`robosuite.py`).

Layout of LIBERO (Liu et al., 2023, arXiv 2306.03310, `scripts/create_dataset.py`), the same with
other names: `data/demo_<i>` with `actions` (T, 7), `rewards` and `obs/<key>`: `ee_pos` (T, 3) m,
`ee_ori` (T, 3), a rotation vector, `joint_states` (T, 7), `gripper_states` (T, 2) m, and images
`<camera>_rgb`. `data.attrs` contain `env_args`, `problem_info` with the instruction, and
`macros_image_convention`: with `opengl`, as published, the first row of an image is the lowest
one.
"""

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.checks import (
    equal_lengths,
    image,
    inside,
    numbers,
    positions,
    visible_files,
)
from stringline.datasets.formats.conversions import (
    Dimension,
    NumberVector,
    gripper_convention,
    gripper_dimension,
    linear,
    pose_dimensions,
    pose_of_quaternions,
    pose_of_vectors,
)
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
    camera_times,
    chosen_cameras,
    last_number,
)
from stringline.datasets.formats.image_codecs import check_pixels, counts
from stringline.datasets.formats.robosuite import (
    CAMERA_INFO,
    Controller,
    controller_of,
    environment_of,
    named_controller,
    robots_of,
    with_geometry,
)
from stringline.datasets.formats.vector_layout import VectorSpec
from stringline.datasets.loading.sampler import SPLIT, TRAINING, VALIDATION

PER_ARM = 7
_WIDTHS = {"_eef_pos": 3, "_eef_quat": 4}
NEXT = "next_obs"
SPLITS = {"train": TRAINING, "valid": VALIDATION}
SkippedFields = dict[str, str]
Known = tuple[float, str, Mapping[str, Any]]
"""What all episodes share: steps per second, name of the embodiment, further information."""


class RobomimicReader:
    """Reads robomimic's HDF5: states of joints and fingers, controller actions in m and rad."""

    def __init__(
        self,
        *,
        action_gripper: str | Mapping[str, float] | None = None,
        gripper_open_m: float | None = None,
        controller: Mapping[str, Any] | None = None,
        control_hz: float | None = None,
        cameras: Mapping[str, str] | None = None,
    ) -> None:
        """Sets the options that the file may not contain.

        Args:
            action_gripper: Gripper convention of the actions, signed_closing for robosuite;
                required.
            gripper_open_m: Distance of open fingers, m, 0.08 for a Panda; required.
            controller: Scales of an action, {position_m: 0.05, rotation_rad: 0.5, relative: true};
                None: as in the file.
            control_hz: Steps per second; None: as in the file.
            cameras: {agentview: overhead, ...} selects and renames these cameras, without `_image`;
                None: all; {}: none.
        """
        self._action_gripper = gripper_convention(action_gripper, "format.action_gripper")
        if gripper_open_m is None:
            raise ValueError(
                "Set the distance of open fingers, format.gripper_open_m=NUMBER; a Panda has 0.08."
            )
        self._fingers = linear("fingers_m", "distance of the fingers in m", 0.0, gripper_open_m)
        self._controller = None if controller is None else named_controller(controller)
        self._hz = control_hz
        self._cameras = cameras

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the episodes of a file."""
        with hdf5.opened(path) as file:
            if "data" not in file:
                raise ValueError(
                    f"{path} is not a file of robomimic: it has no group `data`. It has: "
                    f"{', '.join(file) or 'nothing'}."
                )
            names = sorted(
                hdf5.members(file, "data"), key=lambda name: (last_number(name, -1), name)
            )
            environment = environment_of(file)
            masks = {
                name: {
                    bytes(entry).decode(errors="replace")
                    for entry in hdf5.rows(hdf5.dataset(file, f"mask/{name}"), f"mask/{name}")
                }
                for name in hdf5.members(file, "mask")
            }
        controller = self._controller or controller_of(environment)
        rate = self._hz or environment.get("env_kwargs", {}).get("control_freq")
        if not rate:
            raise ValueError(
                f"{path} does not contain the control rate; set it, format.control_hz=NUMBER."
            )
        embodiment = robots_of(environment)
        for place, name in enumerate(names):
            extra = {
                "environment": environment.get("env_name", ""),
                "masks": sorted(m for m, of in masks.items() if name in of),
            }
            splits = [of for mask, of in SPLITS.items() if name in masks.get(mask, ())]
            extra |= {SPLIT: splits[-1]} if splits else {}
            read = partial(self._read, path, name, controller, (float(rate), embodiment, extra))
            yield Reference(f"{path.name}/{name}", last_number(name, place), read)

    def _read(
        self,
        path: Path,
        name: str,
        controller: Controller,
        known: Known,
    ) -> ImportedEpisode:
        rate, embodiment, extra = known
        series, cameras, rewards, (further, skipped_fields) = self._contents(path, name)
        steps = len(series["actions"])
        poses = [key for key in series if key.endswith("_eef_pos")]
        arms = sorted({key.removeprefix("obs/").partition("_")[0] for key in poses})
        meaning = self._meaning(arms, series, controller, embodiment)
        time = np.arange(steps) / rate
        contract = meaning.contract(list(cameras.values()), rate, arms)
        arrays = {
            "time": time,
            "action": meaning.action.imported("actions", series["actions"]),
            **camera_times(contract, time),
            **further,
        }
        if meaning.state.dimensions:
            state = np.concatenate([part for arm in arms for part in _joints(arm, series)], axis=1)
            arrays["joints/position"] = meaning.state.imported(
                "obs/robot<i>_joint_pos, _gripper_qpos", state
            )
        arrays |= {f"T_base_gripper/{arm}": self._pose(arm, series) for arm in arms}
        if rewards is not None and rewards.shape == (steps,):
            arrays["reward"] = np.asarray(rewards, np.float32)
        elif rewards is not None:
            skipped_fields["rewards"] = "not one number per step of the action"
        success = None if rewards is None else bool((rewards > 0).any())
        return ImportedEpisode(
            contract,
            arrays,
            self._images(path, name, cameras),
            success=success,
            extra=extra,
            skipped_fields=skipped_fields,
        )

    def _contents(
        self, path: Path, name: str
    ) -> tuple[
        dict[str, Array], dict[str, Camera], Array | None, tuple[dict[str, Array], SkippedFields]
    ]:
        """Returns the numbers of an episode by key, its cameras, its rewards or None, and the rest.

        The rest are the geometry of cameras and further series, and what is left out.
        """
        with hdf5.opened(path) as file:
            demo = hdf5.item_at(file, f"data/{name}")
            lengths = {
                key: len(hdf5.dataset(demo, key)) for key in ("actions", *self._read_keys(demo))
            }
            equal_lengths(lengths)
            series = {
                key: numbers(key, hdf5.rows(hdf5.dataset(demo, key), key), _width_of(key))
                for key in lengths
                if not key.endswith(("_image", "_depth"))
            }
            cameras = {old: self._camera(demo, old, new) for old, new in self._chosen(demo).items()}
            cameras, geometry, unread = with_geometry(demo, cameras)
            rewarded = hdf5.item_at(demo, "rewards") is not None
            rewards = hdf5.rows(hdf5.dataset(demo, "rewards"), "rewards") if rewarded else None
            following = [key for key in hdf5.keys(demo) if key.startswith(f"{NEXT}/")]
            rest = hdf5.others(demo, {*lengths, "rewards", *following}, len(series["actions"]))
            if following:
                rest[1][NEXT] = "the observations of the next step"
            for key in {*demo.attrs} - {"num_samples", CAMERA_INFO}:
                rest[1][f"attribute {key}"] = "a description of the simulator"
        return series, cameras, rewards, (rest[0] | geometry, rest[1] | unread)

    def _pose(self, arm: str, series: Mapping[str, Array]) -> Array:
        """Returns the poses (T, 4, 4) of a gripper."""
        position = positions(f"obs/{arm}_eef_pos", series[f"obs/{arm}_eef_pos"])
        key = f"obs/{arm}_eef_quat"
        return pose_of_quaternions(key, position, series[key])

    def _read_keys(self, demo: Any) -> list[str]:
        """Returns the keys of the observations to read."""
        offered = hdf5.members(demo, "obs")
        arms = [key.removesuffix("_eef_pos") for key in offered if key.endswith("_eef_pos")]
        wanted = [f"{arm}_{part}" for arm in arms for part in ("eef_pos", "eef_quat")]
        optional = [f"{arm}_{part}" for arm in arms for part in ("joint_pos", "gripper_qpos")]
        images = [f"{name}_{kind}" for name in self._chosen(demo) for kind in ("image", "depth")]
        wanted += [key for key in (*optional, *images) if key in offered]
        return [f"obs/{key}" for key in wanted]

    def _chosen(self, demo: Any) -> Mapping[str, str]:
        offered = [
            key.removesuffix("_image")
            for key in hdf5.members(demo, "obs")
            if key.endswith("_image")
        ]
        return chosen_cameras(self._cameras, offered)

    @staticmethod
    def _camera(demo: Any, old: str, new: str) -> Camera:
        shape = hdf5.dataset(demo, f"obs/{old}_image").shape
        if len(shape) != 4 or shape[3] != 3:
            raise ForeignDataError(f"obs/{old}_image has shape {shape}; allowed: (T, H, W, 3).")
        depth: DepthSource | None = (
            "simulated" if f"{old}_depth" in hdf5.members(demo, "obs") else None
        )
        return Camera(new, shape[1], shape[2], depth, has_geometry=False)

    def _meaning(
        self,
        arms: Sequence[str],
        series: Mapping[str, Array],
        controller: Controller,
        embodiment: str,
    ) -> VectorSpec:
        width = series["actions"].shape[1]
        if not arms or width != PER_ARM * len(arms):
            raise ForeignDataError(
                f"actions has {width} numbers for {len(arms)} arms; allowed: {PER_ARM} for each "
                "arm."
            )
        scales = (controller.mode, controller.position_m, controller.rotation_rad)
        action = NumberVector(
            tuple(
                dimension
                for arm in arms
                for dimension in pose_dimensions(arm, "world", self._action_gripper, *scales)
            )
        )
        state = NumberVector(tuple(d for arm in arms for d in self._state(arm, series)))
        return VectorSpec(state, action, embodiment, "the world of robosuite; z up")

    def _state(self, arm: str, series: Mapping[str, Array]) -> tuple[Dimension, ...]:
        revolute = (
            series[f"obs/{arm}_joint_pos"].shape[1] if f"obs/{arm}_joint_pos" in series else 0
        )
        fingers = (
            [gripper_dimension(f"{arm}/gripper", arm, self._fingers)]
            if f"obs/{arm}_gripper_qpos" in series
            else []
        )
        return (
            *(Dimension(f"{arm}/joint_{place}", arm) for place in range(1, revolute + 1)),
            *fingers,
        )

    def _images(self, path: Path, name: str, cameras: Mapping[str, Camera]) -> dict[str, Frames]:
        found: dict[str, Frames] = {}
        for old, camera in cameras.items():
            found[f"rgb/{camera.name}"] = partial(
                _frames, path, f"data/{name}/obs/{old}_image", camera, depth=False
            )
            if camera.depth:
                found[f"depth/{camera.name}"] = partial(
                    _frames, path, f"data/{name}/obs/{old}_depth", camera, depth=True
                )
        return found


def _frames(path: Path, key: str, camera: Camera, *, depth: bool) -> Iterator[Array]:
    for frame, row in hdf5.each_row(path, key):
        yield (counts if depth else image)(key, frame, row, camera.height, camera.width)


def _width_of(key: str) -> int | None:
    """Returns how many numbers a series has per step, or None if that depends on the robot."""
    return next((width for part, width in _WIDTHS.items() if key.endswith(part)), None)


def _joints(arm: str, series: Mapping[str, Array]) -> Iterator[Array]:
    """Yields the joints (T, J) and the distance of the fingers (T, 1) of an arm, if recorded."""
    if f"obs/{arm}_joint_pos" in series:
        yield series[f"obs/{arm}_joint_pos"]
    key = f"obs/{arm}_gripper_qpos"
    if (fingers := series.get(key)) is not None:
        if not fingers.shape[1]:
            raise ForeignDataError(f"{key} has shape {fingers.shape}; allowed: (T, 1) and more.")
        yield np.abs(fingers[:, :1] - fingers[:, 1:2]) if fingers.shape[1] == 2 else fingers[:, :1]


_CONVENTIONS = ("opengl", "opencv")
_COLOURS = "_rgb"
_ROTATION = "obs/robot0_eef_ori"
# Name in robomimic and numbers per step (if None, any) by name in LIBERO.
_SERIES: Mapping[str, tuple[str, int | None]] = {
    "actions": ("actions", None),
    "obs/ee_pos": ("obs/robot0_eef_pos", 3),
    "obs/ee_ori": (_ROTATION, 3),
    "obs/joint_states": ("obs/robot0_joint_pos", None),
    "obs/gripper_states": ("obs/robot0_gripper_qpos", 2),
}


class LiberoReader(RobomimicReader):
    """Reads LIBERO's HDF5: one Panda arm, actions of robosuite's controller in m and rad.

    Depth is omitted: the files have values of the depth buffer, without the planes that scale them.
    """

    def __init__(
        self,
        *,
        action_gripper: str | Mapping[str, float] | None = "signed_closing",
        gripper_open_m: float | None = 0.08,
        controller: Mapping[str, Any] | None = None,
        control_hz: float | None = None,
        cameras: Mapping[str, str] | None = None,
        image_convention: str | None = None,
    ) -> None:
        """Sets the options that the file may not contain.

        Args:
            action_gripper: Gripper convention of the actions.
            gripper_open_m: Distance of open fingers, m.
            controller: Scales of an action, {position_m: 0.05, rotation_rad: 0.5, relative: true};
                None: as in the file.
            control_hz: Steps per second; None: as in the file.
            cameras: {agentview: overhead, ...} selects and renames these cameras, without `_rgb`;
                None: all; {}: none.
            image_convention: opengl: the first row of an image is the lowest; opencv: the highest;
                None: as in the file, opengl if it lacks it.

        Raises:
            ValueError: An option is invalid.
        """
        super().__init__(
            action_gripper=action_gripper,
            gripper_open_m=gripper_open_m,
            controller=controller,
            control_hz=control_hz,
            cameras=cameras,
        )
        if image_convention not in (None, *_CONVENTIONS):
            raise unknown_name("image convention", str(image_convention), _CONVENTIONS)
        self._convention = image_convention

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the episodes of a file, or of all files in a folder and its subfolders."""
        files = [path] if path.is_file() else visible_files(path, "**/*.hdf5")
        if not files:
            raise ValueError(f"There are no .hdf5 files in {path}.")
        for file in files:
            yield from super().episodes(inside(path, file))

    def _read(self, path: Path, name: str, controller: Controller, known: Known) -> ImportedEpisode:
        episode = super()._read(path, name, controller, known)
        with hdf5.opened(path) as file:
            data = hdf5.item_at(file, "data")
            problem = _plain(data, "problem_info")
            task = Path(str(hdf5.attribute(data, "bddl_file_name") or "")).name
        return replace(
            episode,
            instruction=_instruction(problem.get("language_instruction", "")),
            extra={**episode.extra, "bddl_file": task},
        )

    def _contents(
        self, path: Path, name: str
    ) -> tuple[
        dict[str, Array], dict[str, Camera], Array | None, tuple[dict[str, Array], SkippedFields]
    ]:
        """Returns the same as for robomimic, by its keys."""
        with hdf5.opened(path) as file:
            demo = hdf5.item_at(file, f"data/{name}")
            offered = [
                key.removesuffix(_COLOURS)
                for key in hdf5.members(demo, "obs")
                if key.endswith(_COLOURS)
            ]
            chosen = chosen_cameras(self._cameras, offered)
            series = {
                new: numbers(old, hdf5.rows(hdf5.dataset(demo, old), old), width)
                for old, (new, width) in _SERIES.items()
            }
            shapes = {old: hdf5.dataset(demo, f"obs/{old}{_COLOURS}").shape for old in chosen}
            rewarded = hdf5.item_at(demo, "rewards") is not None
            rewards = hdf5.rows(hdf5.dataset(demo, "rewards"), "rewards") if rewarded else None
            images = {f"obs/{old}{_COLOURS}" for old in chosen}
            steps = len(series["actions"])
            rest = hdf5.others(demo, {*_SERIES, *images, "rewards"}, steps)
            cameras = {
                old: _libero_camera(old, chosen[old], shape) for old, shape in shapes.items()
            }
            cameras, geometry, unread = with_geometry(demo, cameras)
        lengths = {old: len(series[new]) for old, (new, _) in _SERIES.items()}
        equal_lengths(lengths | {f"obs/{old}{_COLOURS}": s[0] for old, s in shapes.items()})
        return series, cameras, rewards, (rest[0] | geometry, rest[1] | unread)

    def _pose(self, arm: str, series: Mapping[str, Array]) -> Array:
        position = positions("obs/ee_pos", series[f"obs/{arm}_eef_pos"])
        return pose_of_vectors(position, series[_ROTATION])

    def _images(self, path: Path, name: str, cameras: Mapping[str, Camera]) -> dict[str, Frames]:
        with hdf5.opened(path) as file:
            recorded = hdf5.attribute(hdf5.item_at(file, "data"), "macros_image_convention")
        convention = self._convention or (_CONVENTIONS[0] if recorded is None else recorded)
        if not isinstance(convention, str) or convention not in _CONVENTIONS:
            raise ForeignDataError(
                str(unknown_name("image convention", str(convention), _CONVENTIONS))
            )
        return {
            f"rgb/{camera.name}": partial(
                _libero_frames,
                path,
                f"data/{name}/obs/{old}{_COLOURS}",
                camera,
                convention == "opengl",
            )
            for old, camera in cameras.items()
        }


def _libero_camera(old: str, new: str, shape: tuple[int, ...]) -> Camera:
    if len(shape) != 4 or shape[3] != 3:
        raise ForeignDataError(f"obs/{old}{_COLOURS} has shape {shape}; allowed: (T, H, W, 3).")
    check_pixels(f"obs/{old}{_COLOURS}", shape[2], shape[1])
    return Camera(new, shape[1], shape[2], has_geometry=False)


def _libero_frames(path: Path, key: str, camera: Camera, upside_down: bool) -> Iterator[Array]:
    for frame, row in hdf5.each_row(path, key):
        found = image(key, frame, row, camera.height, camera.width)
        yield found[::-1] if upside_down else found


def _instruction(found: Any) -> str:
    """Returns an instruction; some files have it as a list of characters, some in quotes."""
    parts = found if isinstance(found, list) else [found]
    if not all(isinstance(part, str) for part in parts):
        raise ForeignDataError(
            f"the language_instruction in data.attrs['problem_info'] is {reprlib.repr(found)}; "
            "allowed: a text, or a list of characters."
        )
    return "".join(parts).strip('"')


def _plain(data: Any, key: str) -> dict[str, Any]:
    """Returns an attribute that contains JSON; empty without it."""
    try:
        text = hdf5.attribute(data, key)
        found = {} if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ForeignDataError(f"data.attrs[{key!r}] is not JSON: {error}.") from error
    return found if isinstance(found, dict) else {}
