"""Reader and writer of ACT's HDF5: one file per episode, with raw or JPEG images.

Layout (Zhao et al., 2023, and its successors): `observations/qpos`, `observations/qvel`, `action`
(T, 14), and for each camera `observations/images/<camera>`, either (T, H, W, 3) uint8 or JPEG, one
padded row (T, N) uint8 or one string of bytes per frame. Recorders of RGB-D cameras, such as that
of Cobot Magic, add `observations/images_depth/<camera>` (T, H, W).
"""

import logging
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats import exporting, hdf5
from stringline.datasets.formats.act_cameras import act_cameras, act_images
from stringline.datasets.formats.checks import equal_lengths, numbers
from stringline.datasets.formats.depth_series import DepthOptions
from stringline.datasets.formats.foreign import (
    ForeignEpisode,
    Reference,
    camera_times,
    last_number,
)
from stringline.datasets.formats.image_codecs import jpeg
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.vector_layout import AlohaLayout, VectorLayout, joint_arrays
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

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
            yield Reference(file.name, last_number(file.stem, number), partial(self._read, file))

    def _read(self, path: Path) -> ForeignEpisode:
        with hdf5.opened(path) as file:
            state = self._series(file, "observations/qpos")
            action = self._series(file, "action")
            speed = self._series(file, "observations/qvel") if "observations/qvel" in file else None
            cameras = act_cameras(file, self._cameras, self._depth)
            frames = {key: len(hdf5.dataset(file, key)) for entry in cameras for key in entry.keys}
            speeds = {} if speed is None else {"observations/qvel": len(speed)}
            steps = equal_lengths(
                {"action": len(action), "observations/qpos": len(state), **speeds, **frames}
            )
            if "base_action" in file:
                _log.warning("%s: base_action (the wheels) is left out.", path.name)
            simulated = bool(file.attrs.get("sim", False))
        meaning = self._layout.meaning(_columns("qpos", state), _columns("action", action))
        contract = meaning.contract([entry.camera for entry in cameras], self._hz)
        time = np.arange(steps) / self._hz
        arrays = {
            "time": time,
            **joint_arrays(meaning, ("observations/qpos", state), ("action", action)),
            **camera_times(contract, time),
        }
        if speed is not None:
            arrays["joints/velocity"] = meaning.state.imported_rates(state, speed)
        images = act_images(path, cameras, swap=self._swap)
        return ForeignEpisode(contract, arrays, images, extra={"simulated": simulated})

    @staticmethod
    def _series(file: Any, key: str) -> Array:
        return numbers(key, hdf5.rows(hdf5.dataset(file, key), key))


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
