"""Writer of ACT's HDF5, in the layout that `act_hdf5.py` describes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import SERIES, Array
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats import exporting
from stringline.datasets.formats.foreign import LeftOut
from stringline.datasets.formats.image_codecs import jpeg
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.vector_layout import AlohaLayout
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

RESERVED = ("action", "observations/qpos", "observations/qvel", "observations/images", "compress")
# An import computes the poses of the grippers from the joints.
HELD = ("rgb", "action", "joints/position", "joints/velocity", "T_base_gripper", "instruction")


class ActHdf5Writer:
    """Writes ACT's HDF5 of ALOHA, without depth, geometry and times.

    Velocities that are not in the store are differences of positions. Further series get the names
    that they had, and `instruction` is an attribute of the file.
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

    def write(self, store: EpisodeStore, path: Path) -> LeftOut:
        """Writes `episode_0.hdf5` and so on into a new folder; returns what the format lacks.

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
        with exporting.complete(
            path, exporting.size_of_images(episodes, cameras, depth=False)
        ) as folder:
            folder.mkdir()
            for number, episode in exporting.with_progress(episodes):
                self._write(folder / f"episode_{number}.hdf5", episode, cameras)
        series = [key for each in episodes for key in _further(each)]
        return exporting.left_out(episodes, {*HELD, *series}, cameras)

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
            if episode.attributes.instruction:
                file.attrs["instruction"] = episode.attributes.instruction
            for key in _further(episode):
                file[key.removeprefix(SERIES)] = np.asarray(arrays[key])
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


def _further(episode: StoredEpisode) -> list[str]:
    """Returns the keys of the further series whose names are free in the file."""
    keys = [key for key in episode.entries if key.startswith(SERIES)]
    return [
        key
        for key in keys
        if not key.removeprefix(SERIES).startswith(RESERVED)
        # A name is that of a data set or of a group.
        and not any(other.startswith(f"{key}/") for other in keys)
    ]


def _padded(row: Array, length: int) -> Array:
    return np.pad(row, (0, length - len(row)))
