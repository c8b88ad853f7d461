"""Calibration of the episodes of a store: intrinsics and camera poses are added or replaced."""

from collections.abc import Sequence
from dataclasses import replace

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.contract.contract import Array
from stringline.datasets.editing.edit import edited
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore, episode_name
from stringline.datasets.store.transactions import transaction


def calibrate(
    store: EpisodeStore, names: Sequence[str], calibration: CameraCalibration
) -> list[str]:
    """Replaces episodes by calibrated ones, which share all other arrays; returns the new names.

    Cameras that the calibration lacks keep their geometry. Those with `parent: recorded` keep their
    poses and get its intrinsics.

    Raises:
        ValueError: The calibration does not fit an episode; then none is changed.
    """
    episodes = [store.episode(name) for name in names]
    what = {"calibrate": {"cameras": sorted(calibration.cameras)}}
    new = [
        replace(
            episode.attributes,
            contract=calibration.contract(episode.attributes.contract, _poses(episode)),
            extra=edited(episode, what),
        )
        for episode in episodes
    ]
    arrays = [
        calibration.arrays(attributes.contract, episode.arrays, _poses(episode))
        for attributes, episode in zip(new, episodes, strict=True)
    ]
    new_names = [episode_name(attributes.task, attributes.seed) for attributes in new]
    with transaction(store.path, new_names, names):
        for name, attributes, episode, added in zip(new_names, new, episodes, arrays, strict=True):
            with EpisodeWriter(store.path, name, attributes) as writer:
                writer.take_over(episode, [key for key in episode.entries if key not in added])
                for key, array in added.items():
                    writer.put(key, array)
                writer.commit()
    return new_names


def _poses(episode: StoredEpisode) -> dict[str, Array]:
    """Returns the stored poses by the name of the camera."""
    return {
        camera.name: episode.arrays[f"T_base_camera/{camera.name}"]
        for camera in episode.attributes.contract.cameras
        if camera.has_geometry
    }
