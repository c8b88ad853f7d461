"""Reader of LIBERO's HDF5: robomimic's layout with other names, one file per task.

Layout (Liu et al., 2023, arXiv 2306.03310, `scripts/create_dataset.py`): `data/demo_<i>` with
`actions` (T, 7), `rewards` and `obs/<key>`: `ee_pos` (T, 3) m, `ee_ori` (T, 3), a rotation vector,
`joint_states` (T, 7), `gripper_states` (T, 2) m, and images `<camera>_rgb`. `data.attrs` contain
`env_args` as in robomimic, `problem_info` with the instruction, and `macros_image_convention`:
with `opengl`, as published, the first row of an image is the lowest one. The model of the simulator
in each demonstration has the poses of fixed cameras (`robosuite_model.py`).
"""

import json
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.checks import equal_lengths, image, numbers, positions
from stringline.datasets.formats.confinement import inside
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ForeignEpisode,
    Frames,
    Reference,
    chosen_cameras,
)
from stringline.datasets.formats.image_codecs import check_pixels
from stringline.datasets.formats.poses import pose_of_vectors
from stringline.datasets.formats.robomimic import Known, LeftOut, RobomimicReader
from stringline.datasets.formats.robosuite_cameras import with_geometry
from stringline.datasets.formats.robosuite_controller import Controller

_CONVENTIONS = ("opengl", "opencv")
_COLOURS = "_rgb"
_ROTATION = "obs/robot0_eef_ori"
# Name in robomimic and numbers per step (None: any) by name in LIBERO.
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
            gripper_open_m: Distance of the fingers at opening 1.
            controller: Scales of an action, `{position_m, rotation_rad, relative}`; None reads
                them from `env_args`.
            control_hz: Steps per second; None reads them from `env_args`.
            cameras: New name of the camera by name without `_rgb`; None takes all cameras.
            image_convention: `opengl` if the first row of an image is the lowest one, else
                `opencv`; None reads it from the file, `opengl` if it lacks it.

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
        files = [path] if path.is_file() else sorted(path.rglob("*.hdf5"))
        if not files:
            raise ValueError(f"There are no .hdf5 files in {path}.")
        for file in files:
            yield from super().episodes(inside(path, file))

    def _read(self, path: Path, name: str, controller: Controller, known: Known) -> ForeignEpisode:
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
    ) -> tuple[dict[str, Array], dict[str, Camera], Array | None, tuple[dict[str, Array], LeftOut]]:
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
            cameras = {old: _camera(old, chosen[old], shape) for old, shape in shapes.items()}
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
                _frames, path, f"data/{name}/obs/{old}{_COLOURS}", camera, convention == "opengl"
            )
            for old, camera in cameras.items()
        }


def _camera(old: str, new: str, shape: tuple[int, ...]) -> Camera:
    if len(shape) != 4 or shape[3] != 3:
        raise ForeignDataError(f"obs/{old}{_COLOURS} has shape {shape}; allowed: (T, H, W, 3).")
    check_pixels(f"obs/{old}{_COLOURS}", shape[2], shape[1])
    return Camera(new, shape[1], shape[2], has_geometry=False)


def _frames(path: Path, key: str, camera: Camera, upside_down: bool) -> Iterator[Array]:
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
