"""Reader of robomimic's HDF5: one file per task, actions of robosuite's controller `OSC_POSE`.

Layout (Mandlekar et al., 2021): `data/demo_<i>` with `actions` (T, A), `rewards`, `states` and
`obs/<key>`; `data.attrs["env_args"]` describes the environment. Images are `obs/<camera>_image`,
depth is `obs/<camera>_depth`, poses are `obs/robot<i>_eef_pos` and `obs/robot<i>_eef_quat` (x y z
w), fingers `obs/robot<i>_gripper_qpos`. Masks become attributes; `valid` holds episodes out. Some
files contain the calibration of the cameras (`robosuite_cameras.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.checks import equal_lengths, image, numbers, positions
from stringline.datasets.formats.dimensions import (
    Dimension,
    NumberVector,
    gripper_dimension,
    pose_dimensions,
)
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ForeignEpisode,
    Frames,
    Reference,
    camera_times,
    chosen_cameras,
    last_number,
)
from stringline.datasets.formats.grippers import gripper_convention, linear
from stringline.datasets.formats.image_codecs import counts
from stringline.datasets.formats.poses import pose_of_quaternions
from stringline.datasets.formats.robosuite_cameras import ATTRIBUTE as CAMERA_INFO
from stringline.datasets.formats.robosuite_cameras import with_geometry
from stringline.datasets.formats.robosuite_controller import (
    Controller,
    controller_of,
    named_controller,
)
from stringline.datasets.formats.robosuite_environment import environment_of, robots_of
from stringline.datasets.formats.vector_layout import Meaning
from stringline.datasets.loading.held_out import SPLIT, TRAINING, VALIDATION

PER_ARM = 7
_WIDTHS = {"_eef_pos": 3, "_eef_quat": 4}
NEXT = "next_obs"
SPLITS = {"train": TRAINING, "valid": VALIDATION}
LeftOut = dict[str, str]
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
            action_gripper: Gripper convention of the actions; `signed_closing` in robosuite's own
                environments.
            gripper_open_m: Distance of the fingers at opening 1, 0.08 for a Panda.
            controller: Scales of an action, `{position_m, rotation_rad, relative}`; None reads
                them from `env_args`.
            control_hz: Steps per second; None reads them from `env_args`.
            cameras: New name of the camera by name without `_image`; None takes all cameras.
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
    ) -> ForeignEpisode:
        rate, embodiment, extra = known
        series, cameras, rewards, (further, left_out) = self._contents(path, name)
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
            left_out["rewards"] = "not one number per step of the action"
        success = None if rewards is None else bool((rewards > 0).any())
        return ForeignEpisode(
            contract,
            arrays,
            self._images(path, name, cameras),
            success=success,
            extra=extra,
            left_out=left_out,
        )

    def _contents(
        self, path: Path, name: str
    ) -> tuple[dict[str, Array], dict[str, Camera], Array | None, tuple[dict[str, Array], LeftOut]]:
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
    ) -> Meaning:
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
        return Meaning(state, action, embodiment, "the world of robosuite; z up")

    def _state(self, arm: str, series: Mapping[str, Array]) -> tuple[Dimension, ...]:
        hinges = series[f"obs/{arm}_joint_pos"].shape[1] if f"obs/{arm}_joint_pos" in series else 0
        fingers = (
            [gripper_dimension(f"{arm}/gripper", arm, self._fingers)]
            if f"obs/{arm}_gripper_qpos" in series
            else []
        )
        return (
            *(Dimension(f"{arm}/joint_{place}", arm) for place in range(1, hinges + 1)),
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
