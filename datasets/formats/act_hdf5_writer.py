"""Writing ACT's HDF5: a file per episode, as ACT's own training reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.episode import StoredEpisode
from stringline.datasets.formats import exporting
from stringline.datasets.formats.body import AlohaBody
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.pictures import jpeg
from stringline.datasets.store import EpisodeStore


class ActHdf5Writer:
    """Writes ACT's HDF5 of ALOHA.

    It has no place for depth, geometry and times. Where the store has no velocities, they are differences of positions.
    """

    def __init__(
        self,
        *,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        cameras: Mapping[str, str] | None = None,
        jpeg_quality: int | None = None,
    ) -> None:
        """Sets how it is written.

        Args:
            state_gripper: How states shall count the gripper, a name of `GRIPPER_CONVENTIONS` or its ends.
            action_gripper: The same for actions.
            cameras: Cameras to write, each with the name it gets; None writes all.
            jpeg_quality: 1 to 95; None writes raw pictures.

        Raises:
            ValueError: A convention is not named or does not exist, or the quality is no such number.
        """
        if jpeg_quality is not None and not 1 <= jpeg_quality <= 95:
            raise ValueError(f"target.jpeg_quality is {jpeg_quality}; allowed: 1 to 95, or null for raw pictures.")
        names = [joint.name for joint in ALOHA.joints]
        self._meaning = AlohaBody(state_gripper, action_gripper, options="target").meaning(names, names)
        self._cameras, self._quality = cameras, jpeg_quality

    def write(self, store: EpisodeStore, path: Path) -> None:
        """Writes `episode_0.hdf5` and so on into a new folder.

        Raises:
            ValueError: The episodes are not of ALOHA's 14 joints with absolute targets.
            NoSpaceError: The disk is full; nothing stays behind.
        """
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        expected = ALOHA.contract([], contract.control_hz)
        if (contract.joints, contract.action) != (expected.joints, expected.action):
            raise ValueError(
                f"ACT's HDF5 holds ALOHA's 14 joints and absolute targets; {store.path} has {contract.embodiment}."
            )
        cameras = exporting.chosen_cameras(contract, self._cameras)
        exporting.report_left_out(contract, {"poses"})
        with exporting.complete(path, exporting.size_of_pictures(episodes, cameras, depth=False)) as folder:
            folder.mkdir()
            for number, episode in exporting.with_progress(episodes):
                self._write(folder / f"episode_{number}.hdf5", episode, cameras)

    def _write(self, path: Path, episode: StoredEpisode, cameras: Mapping[str, str]) -> None:
        arrays = episode.arrays
        position = np.asarray(arrays["joints/position"], np.float64)
        state = self._meaning.state.exported(position)
        if "joints/velocity" in arrays:
            speed = self._meaning.state.exported_rates(position, np.asarray(arrays["joints/velocity"], np.float64))
        else:
            speed = np.gradient(state, arrays["time"], axis=0) if len(state) > 1 else np.zeros_like(state)
        with optional_library("h5py").File(path, "w") as file:
            # ACT takes `sim` for "action[t] answers observation[t]" and shifts the actions of all other files by a step.
            file.attrs["sim"] = True
            file.attrs["compress"] = self._quality is not None
            file["action"] = self._meaning.action.exported(np.asarray(arrays["action"], np.float64))
            file["observations/qpos"] = state
            file["observations/qvel"] = exporting.float_rows(speed)
            lengths = [self._pictures(file, episode, name, new) for name, new in cameras.items()]
            if self._quality is not None:
                file["compress_len"] = np.array(lengths, np.float32)

    def _pictures(self, file: Any, episode: StoredEpisode, name: str, new: str) -> list[int]:
        """Writes the pictures of a camera and returns the length of each when compressed."""
        pictures = exporting.pictures_of(episode, "rgb", name)
        key = f"observations/images/{new}"
        if self._quality is None:
            camera = episode.attributes.contract.camera(name)
            shape = (camera.height, camera.width, 3)
            data = file.create_dataset(key, (episode.steps, *shape), np.uint8, chunks=(1, *shape))
            for step, picture in enumerate(pictures):
                data[step] = picture
            return []
        encoded = [np.frombuffer(jpeg(picture, self._quality), np.uint8) for picture in pictures]
        longest = max(map(len, encoded))
        file.create_dataset(key, data=np.stack([_padded(row, longest) for row in encoded]), chunks=(1, longest))
        return [len(row) for row in encoded]


def _padded(row: Array, length: int) -> Array:
    return np.pad(row, (0, length - len(row)))
