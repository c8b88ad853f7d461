"""Calibration of the episodes of a store: intrinsics and camera poses are added or replaced."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.fitted_images import (
    FittedImages,
    fitted_images,
    recorded_contract,
)
from stringline.datasets.contract.contract import Array, Contract
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
        ValueError: The calibration does not fit an episode, or belongs to smaller images of which
            the store does not record how they were fitted; then none is changed.
    """
    episodes = [store.episode(name) for name in names]
    what = {"calibrate": {"cameras": sorted(calibration.cameras)}}
    found = [_calibrated(episode, calibration) for episode in episodes]
    new = [
        replace(episode.attributes, contract=contract, extra=edited(episode, what))
        for episode, (contract, _) in zip(episodes, found, strict=True)
    ]
    arrays = [each for _, each in found]
    new_names = [episode_name(attributes.task, attributes.seed) for attributes in new]
    with transaction(store.path, new_names, names):
        for name, attributes, episode, added in zip(new_names, new, episodes, arrays, strict=True):
            with EpisodeWriter(store.path, name, attributes) as writer:
                writer.take_over(episode, [key for key in episode.entries if key not in added])
                for key, array in added.items():
                    writer.put(key, array)
                writer.commit()
    return new_names


def scaled_intrinsics(episode: StoredEpisode, calibration: CameraCalibration) -> list[str]:
    """Returns a sentence for each camera whose intrinsics are scaled to its recorded images."""
    return calibration.scaled(recorded_contract(episode.attributes.contract, _fitted(episode)))


def _calibrated(
    episode: StoredEpisode, calibration: CameraCalibration
) -> tuple[Contract, dict[str, Array]]:
    """Returns the new contract of an episode and its new arrays.

    The calibration belongs to the images of the camera; if an import fitted them to another size,
    the intrinsics follow.
    """
    contract = episode.attributes.contract
    fitted = _fitted(episode)
    poses = _poses(episode)
    recorded = calibration.contract(recorded_contract(contract, fitted), poses)
    _check_sizes(contract, calibration, fitted)
    arrays = calibration.arrays(recorded, episode.arrays, poses)
    for name in calibration.cameras.keys() & fitted.keys():
        key = f"intrinsics/{name}"
        arrays[key] = fitted[name].intrinsics(arrays[key], contract.camera(name))
    cameras = zip(contract.cameras, recorded.cameras, strict=True)
    return contract.with_cameras(
        *(replace(old, has_geometry=new.has_geometry) for old, new in cameras)
    ), arrays


def _fitted(episode: StoredEpisode) -> dict[str, FittedImages]:
    try:
        return fitted_images(episode.attributes.extra)
    except ValueError as error:
        raise ValueError(f"Episode {episode.name}: {error}") from error


def _check_sizes(
    contract: Contract, calibration: CameraCalibration, fitted: Mapping[str, FittedImages]
) -> None:
    """Checks that intrinsics of smaller images belong to images whose fit is recorded."""
    unknown = ((name, each) for name, each in calibration.cameras.items() if name not in fitted)
    for name, geometry in unknown:
        height, width = geometry.size
        camera = contract.camera(name)
        if height < camera.height or width < camera.width:
            stored = f"{camera.height}x{camera.width}"
            raise ValueError(
                f"The calibration of the camera {name!r} is for images of {height}x{width} (rows x "
                f"columns), smaller than the stored ones of {stored}. These may be padded, and the "
                "store does not record how an import fitted them. Allowed: the size and the "
                "intrinsics of the stored images, or of larger ones of the same aspect ratio; or "
                "import the data again with cameras=FILE."
            )


def _poses(episode: StoredEpisode) -> dict[str, Array]:
    """Returns the stored poses by the name of the camera."""
    return {
        camera.name: episode.arrays[f"T_base_camera/{camera.name}"]
        for camera in episode.attributes.contract.cameras
        if camera.has_geometry
    }
