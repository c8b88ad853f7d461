"""Reader of ACT's HDF5: one file per episode, with raw or JPEG images.

Layout (Zhao et al., 2023, and its successors): `observations/qpos`, `observations/qvel`, `action`
(T, 14), and for each camera `observations/images/<camera>`, either (T, H, W, 3) uint8 or JPEG, one
padded row (T, N) uint8 or one string of bytes per frame.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.checks import equal_lengths, image, numbers
from stringline.datasets.formats.extra_series import IMAGES as UNUSED_IMAGES
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ForeignEpisode,
    Frames,
    Reference,
    camera_times,
    chosen_cameras,
    last_number,
)
from stringline.datasets.formats.image_codecs import decoded
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays

IMAGES = "observations/images"
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
    ) -> None:
        """Sets the interpretation of the numbers.

        Args:
            layout: Meaning of the 14 numbers.
            control_hz: Steps per second, which the files do not contain.
            cameras: New name of the camera by name in the file; None takes all cameras.
            swap_colours: Whether red and blue are swapped, as in RGB images encoded by OpenCV.
        """
        self._layout = layout
        self._hz = control_hz
        self._cameras = cameras
        self._swap = swap_colours

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
            yield Reference(file.name, last_number(file.stem, number), partial(self._read, file))

    def _read(self, path: Path) -> ForeignEpisode:
        with hdf5.opened(path) as file:
            state = self._series(file, "observations/qpos")
            action = self._series(file, "action")
            speed = self._series(file, "observations/qvel") if "observations/qvel" in file else None
            frames = {
                f"{IMAGES}/{name}": len(hdf5.dataset(file, f"{IMAGES}/{name}"))
                for name in self._chosen(file)
            }
            speeds = {} if speed is None else {"observations/qvel": len(speed)}
            steps = equal_lengths(
                {"action": len(action), "observations/qpos": len(state), **speeds, **frames}
            )
            cameras = {
                name: self._camera(file, name, new) for name, new in self._chosen(file).items()
            }
            extra, left_out = self._others(file, list(cameras), steps)
            instruction = _instruction(file, left_out)
            simulated = bool(file.attrs.get("sim", False))
        meaning = self._layout.meaning(_columns("qpos", state), _columns("action", action))
        contract = meaning.contract(list(cameras.values()), self._hz)
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
            self._frames(path, cameras),
            instruction=instruction,
            extra={"simulated": simulated},
            left_out=left_out,
        )

    @staticmethod
    def _others(
        file: Any, cameras: Sequence[str], steps: int
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns further series, and what is left out, images of other cameras among it."""
        used = {*SERIES, *INSTRUCTION_KEYS, *(f"{IMAGES}/{name}" for name in cameras)}
        known = [key for key in hdf5.keys(file) if key.startswith(LENGTHS)]
        images = {
            key: UNUSED_IMAGES
            for key in hdf5.keys(file)
            if key.startswith(IMAGES) and key not in used
        }
        extra, left_out = hdf5.others(file, {*used, *known, *images}, steps)
        return extra, left_out | images

    @staticmethod
    def _series(file: Any, key: str) -> Array:
        return numbers(key, hdf5.rows(hdf5.dataset(file, key), key))

    def _chosen(self, file: Any) -> Mapping[str, str]:
        """Returns the new names of the cameras by their names in a file."""
        return chosen_cameras(self._cameras, hdf5.members(file, IMAGES))

    def _camera(self, file: Any, name: str, new: str) -> Camera:
        first = self._decoded(
            name, 0, hdf5.rows(hdf5.dataset(file, f"{IMAGES}/{name}"), f"{IMAGES}/{name}", 0, 1)[0]
        )
        if first.ndim != 3 or first.shape[2] != 3:
            raise ForeignDataError(
                f"{IMAGES}/{name} has frames of shape {first.shape}; allowed: (H, W, 3), or JPEG."
            )
        return Camera(new, first.shape[0], first.shape[1], has_geometry=False)

    def _frames(self, path: Path, cameras: Mapping[str, Camera]) -> dict[str, Frames]:
        return {
            f"rgb/{camera.name}": partial(self._images, path, name, camera)
            for name, camera in cameras.items()
        }

    def _images(self, path: Path, name: str, camera: Camera) -> Iterator[Array]:
        for frame, row in hdf5.each_row(path, f"{IMAGES}/{name}"):
            found = image(
                f"{IMAGES}/{name}",
                frame,
                self._decoded(name, frame, row),
                camera.height,
                camera.width,
            )
            yield found[..., ::-1] if self._swap else found

    @staticmethod
    def _decoded(name: str, frame: int, row: Any) -> Array:
        """Returns the image of a raw or encoded row."""
        found = np.frombuffer(row, np.uint8) if isinstance(row, bytes) else np.asarray(row)
        return decoded(f"{IMAGES}/{name}", frame, found.tobytes()) if found.ndim == 1 else found


def _instruction(file: Any, left_out: dict[str, str]) -> str:
    """Returns the first instruction of a file and adds others to `left_out`."""
    for key in INSTRUCTION_KEYS:
        if found := hdf5.texts(file, key):
            if len(set(found)) > 1:
                left_out[key] = "instructions after the first one"
            return found[0]
    return ""


def _columns(key: str, series: Array) -> list[str]:
    return [f"{key}_{column}" for column in range(series.shape[1])]


def _by_numbers(path: Path) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)], path.name
