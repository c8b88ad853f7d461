"""Reader and writer of ACT's HDF5: one file per episode, with raw or JPEG images.

Layout (Zhao et al., 2023, and its successors): `observations/qpos`, `observations/qvel`, `action`
(T, 14), and for each camera `observations/images/<camera>`, either (T, H, W, 3) uint8 or JPEG, one
padded row (T, N) uint8 or one string of bytes per frame.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats import exporting, hdf5
from stringline.datasets.formats.checks import equal_lengths, image, numbers
from stringline.datasets.formats.confinement import inside
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ForeignEpisode,
    Frames,
    Reference,
    camera_times,
    chosen_cameras,
    last_number,
)
from stringline.datasets.formats.image_codecs import decoded, jpeg
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.vector_layout import AlohaLayout, VectorLayout, joint_arrays
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

IMAGES = "observations/images"
_log = logging.getLogger(__name__)


class ActHdf5Reader:
    """Reads ACT's HDF5.

    Efforts are omitted, since recordings have them in the servos' units of current, not in Nm. The
    wheels of a mobile base are omitted as well.
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
            if "base_action" in file:
                _log.warning("%s: base_action (the wheels) is left out.", path.name)
            simulated = bool(hdf5.attribute(file, "sim"))
        meaning = self._layout.meaning(_columns("qpos", state), _columns("action", action))
        contract = meaning.contract(list(cameras.values()), self._hz)
        time = np.arange(steps) / self._hz
        arrays = {
            "time": time,
            **joint_arrays(meaning, ("observations/qpos", state), ("action", action)),
            **camera_times(contract, time),
        }
        if speed is not None:
            arrays["joints/velocity"] = meaning.state.imported_rates(state, speed)
        images: dict[str, Frames] = {
            f"rgb/{camera.name}": partial(self._images, path, name, camera)
            for name, camera in cameras.items()
        }
        return ForeignEpisode(contract, arrays, images, extra={"simulated": simulated})

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


def _columns(key: str, series: Array) -> list[str]:
    return [f"{key}_{column}" for column in range(series.shape[1])]


def _by_numbers(path: Path) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)], path.name


class ActHdf5Writer:
    """Writes ACT's HDF5 of ALOHA, without depth, geometry and times.

    Velocities that are not in the store are differences of positions.
    """

    def __init__(
        self,
        *,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        cameras: Mapping[str, str] | None = None,
        jpeg_quality: int | None = None,
    ) -> None:
        """Sets the options of the export.

        Args:
            state_gripper: Gripper convention of the states, a name of `GRIPPER_CONVENTIONS` or its
                ends.
            action_gripper: Gripper convention of the actions.
            cameras: Name in the file by camera; None writes all cameras.
            jpeg_quality: 1 to 95; None writes raw images.
        """
        if jpeg_quality is not None and not 1 <= jpeg_quality <= 95:
            raise ValueError(
                f"target.jpeg_quality is {jpeg_quality}; allowed: 1 to 95, or null for raw images."
            )
        names = [joint.name for joint in ALOHA.joints]
        self._meaning = AlohaLayout(state_gripper, action_gripper, options="target").meaning(
            names, names
        )
        self._cameras = cameras
        self._quality = jpeg_quality

    def write(self, store: EpisodeStore, path: Path) -> None:
        """Writes `episode_0.hdf5` and so on into a new folder.

        Raises:
            ValueError: The episodes do not have the 14 joints and absolute targets of ALOHA.
            NoSpaceError: The disk is full; no folder is left.
        """
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        expected = ALOHA.contract([], contract.control_hz)
        if (contract.joints, contract.action) != (expected.joints, expected.action):
            raise ValueError(
                f"ACT's HDF5 is for the 14 joints and absolute targets of ALOHA; {store.path} has "
                f"{contract.embodiment}."
            )
        cameras = exporting.chosen_cameras(contract, self._cameras)
        exporting.report_left_out(contract, {"poses"})
        with exporting.complete(
            path, exporting.size_of_images(episodes, cameras, depth=False)
        ) as folder:
            folder.mkdir()
            for number, episode in exporting.with_progress(episodes):
                self._write(folder / f"episode_{number}.hdf5", episode, cameras)

    def _write(self, path: Path, episode: StoredEpisode, cameras: Mapping[str, str]) -> None:
        arrays = episode.arrays
        position = np.asarray(arrays["joints/position"], np.float64)
        state = self._meaning.state.exported(position)
        if "joints/velocity" in arrays:
            speed = self._meaning.state.exported_rates(
                position, np.asarray(arrays["joints/velocity"], np.float64)
            )
        else:
            speed = (
                np.gradient(state, arrays["time"], axis=0)
                if len(state) > 1
                else np.zeros_like(state)
            )
        with optional_library("h5py").File(path, "w") as file:
            # In ACT, `sim` means that action[t] belongs to observation[t]; it shifts the actions of
            # all other files by a step.
            file.attrs["sim"] = True
            file.attrs["compress"] = self._quality is not None
            file["action"] = self._meaning.action.exported(np.asarray(arrays["action"], np.float64))
            file["observations/qpos"] = state
            file["observations/qvel"] = np.ascontiguousarray(speed, np.float32)
            lengths = [self._images(file, episode, name, new) for name, new in cameras.items()]
            if self._quality is not None:
                file["compress_len"] = np.array(lengths, np.float32)

    def _images(self, file: Any, episode: StoredEpisode, name: str, new: str) -> list[int]:
        """Writes the images of a camera and returns their compressed lengths."""
        images = exporting.images_of(episode, "rgb", name)
        key = f"observations/images/{new}"
        if self._quality is None:
            camera = episode.attributes.contract.camera(name)
            shape = (camera.height, camera.width, 3)
            data = file.create_dataset(key, (episode.steps, *shape), np.uint8, chunks=(1, *shape))
            for step, image in enumerate(images):
                data[step] = image
            return []
        encoded = [np.frombuffer(jpeg(image, self._quality), np.uint8) for image in images]
        longest = max(map(len, encoded))
        file.create_dataset(
            key, data=np.stack([_padded(row, longest) for row in encoded]), chunks=(1, longest)
        )
        return [len(row) for row in encoded]


def _padded(row: Array, length: int) -> Array:
    return np.pad(row, (0, length - len(row)))
