"""Reader of ACT's HDF5: one file per episode, with raw or JPEG images.

Layout (Zhao et al., 2023, and its successors): `observations/qpos`, `observations/qvel`, `action`
(T, 14), and for each camera `observations/images/<camera>`, either (T, H, W, 3) uint8 or JPEG, one
padded row (T, N) uint8 or one string of bytes per frame. Recorders of RGB-D cameras, such as that
of Cobot Magic, add `observations/images_depth/<camera>` (T, H, W).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.act_cameras import DEPTHS, IMAGES, act_cameras, act_images
from stringline.datasets.formats.checks import equal_lengths, numbered, numbers
from stringline.datasets.formats.confinement import inside
from stringline.datasets.formats.depth_series import DepthOptions
from stringline.datasets.formats.extra_series import IMAGES as UNUSED_IMAGES
from stringline.datasets.formats.foreign import (
    ForeignEpisode,
    Reference,
    camera_times,
    last_number,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays

SERIES = ("action", "observations/qpos", "observations/qvel")
LENGTHS = "compress_len"  # Lengths of padded JPEG images, which have no meaning after decoding.
INSTRUCTION_KEYS = ("instruction", "language_instruction", "language_raw")


class ActHdf5Reader:
    """Reads ACT's HDF5.

    Efforts become `series/observations/effort`, since recordings have them in the servos' units of
    current, not in Nm. The wheels of a mobile base are such a series as well.
    """

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float = 50.0,
        cameras: Mapping[str, str] | None = None,
        swap_colours: bool = False,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
    ) -> None:
        """Sets the interpretation of the numbers.

        Args:
            layout: Meaning of the 14 numbers.
            control_hz: Steps per second, which the files do not contain.
            cameras: New name of the camera by name in the file; None takes all cameras.
            swap_colours: Whether red and blue are swapped, as in RGB images encoded by OpenCV.
            depth: Name in `images_depth` by the name in `images`; None takes equal names, {} leaves
                depth out.
            depth_unit_m: Metres per stored number of depth, which the files do not contain.
            depth_source: Source of the depth: `measured`, `simulated` or `estimated`.
        """
        self._layout = layout
        self._hz = control_hz
        self._cameras = cameras
        self._swap = swap_colours
        self._depth = DepthOptions(depth, depth_unit_m, depth_source)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the files of a folder in the order of their numbers, or a single file."""
        files = (
            [path]
            if path.is_file()
            else sorted([*path.glob("*.hdf5"), *path.glob("*.h5")], key=_by_numbers)
        )
        if not files:
            raise ValueError(f"There are no .hdf5 files in {path}.")
        for number, file in enumerate(files):
            yield Reference(
                file.name, last_number(file.stem, number), partial(self._read, path, file)
            )

    def _read(self, root: Path, path: Path) -> ForeignEpisode:
        inside(root, path)
        with hdf5.opened(path) as file:
            state = self._series(file, "observations/qpos")
            action = self._series(file, "action")
            measured = hdf5.item_at(file, "observations/qvel") is not None
            speed = self._series(file, "observations/qvel") if measured else None
            cameras = act_cameras(file, self._cameras, self._depth)
            frames = {key: len(hdf5.dataset(file, key)) for entry in cameras for key in entry.keys}
            speeds = {} if speed is None else {"observations/qvel": len(speed)}
            steps = equal_lengths(
                {"action": len(action), "observations/qpos": len(state), **speeds, **frames}
            )
            used = [key for entry in cameras for key in entry.keys]
            extra, left_out = self._others(file, used, steps)
            instruction = _instruction(file, left_out)
            simulated = bool(hdf5.attribute(file, "sim"))
        meaning = self._layout.meaning(_columns("qpos", state), _columns("action", action))
        contract = meaning.contract([entry.camera for entry in cameras], self._hz)
        time = np.arange(steps) / self._hz
        arrays = {
            "time": time,
            **joint_arrays(meaning, ("observations/qpos", state), ("action", action)),
            **camera_times(contract, time),
            **extra,
        }
        if speed is not None:
            arrays["joints/velocity"] = meaning.state.imported_rates(state, speed)
        return ForeignEpisode(
            contract,
            arrays,
            act_images(path, cameras, swap=self._swap),
            instruction=instruction,
            extra={"simulated": simulated},
            left_out=left_out,
        )

    @staticmethod
    def _others(
        file: Any, images: Sequence[str], steps: int
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns further series, and what is left out, images of other cameras among it."""
        used = {*SERIES, *INSTRUCTION_KEYS, *images}
        known = [key for key in hdf5.keys(file) if key.startswith(LENGTHS)]
        others = {
            key: UNUSED_IMAGES
            for key in hdf5.keys(file)
            if key.startswith((f"{IMAGES}/", f"{DEPTHS}/")) and key not in used
        }
        extra, left_out = hdf5.others(file, {*used, *known, *others}, steps)
        return extra, left_out | others

    @staticmethod
    def _series(file: Any, key: str) -> Array:
        return numbers(key, hdf5.rows(hdf5.dataset(file, key), key))


def _instruction(file: Any, left_out: dict[str, str]) -> str:
    """Returns the first instruction of a file and adds others to `left_out`."""
    for key in INSTRUCTION_KEYS:
        if found := hdf5.texts(file, key):
            if len(set(found)) > 1:
                left_out[key] = "instructions after the first one"
            return found[0]
    return ""


def _columns(key: str, series: Array) -> list[str]:
    return numbered(key, series.shape[1])


def _by_numbers(path: Path) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)], path.name
