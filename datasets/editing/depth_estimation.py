"""Copies of a store with depth estimated from colour images, for data without a depth camera.

The contract marks such depth as `estimated`, since it must not be taken for a measurement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.editing.completion import check_completes
from stringline.datasets.files.atomic import check_space
from stringline.datasets.files.lock import exclusive
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.episode_pool import for_each_episode
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore

# Function of images (N, H, W, 3) uint8 that returns depth (N, H, W) in metres along the optical
# axis; not finite if unknown.
Estimator = Callable[[Array], NDArray[np.floating]]


@dataclass(frozen=True)
class DepthEstimation:
    """Settings of a depth estimation.

    Attributes:
        model: Name of the model in the attributes of the episodes.
        cameras: Names of the cameras; None for all.
        replace_depth: Whether existing depth may be replaced.
        depth_unit_m: Metres per count of the stored depth.
        farthest_m: Largest depth; larger estimates become 0 (no return).
        batch: Number of images per call of the estimator.
    """

    estimator: Estimator
    model: str
    cameras: Sequence[str] | None = None
    replace_depth: bool = False
    depth_unit_m: float = 0.001
    farthest_m: float = 10.0
    batch: int = 8

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; allowed: 1 and above.")
        if not 0 < self.farthest_m <= 65535 * self.depth_unit_m:
            most = 65535 * self.depth_unit_m
            raise ValueError(
                f"farthest_m is {self.farthest_m}; allowed at a unit of {self.depth_unit_m} m: up "
                f"to {most:g}."
            )

    def chosen(self, contract: Contract) -> list[str]:
        """Returns the names of the cameras that get depth; existing depth needs `replace_depth`."""
        names = (
            [camera.name for camera in contract.cameras]
            if self.cameras is None
            else list(self.cameras)
        )
        cameras = [contract.camera(name) for name in names]
        for camera in cameras:
            if camera.depth is not None and not self.replace_depth:
                bare = [other.name for other in contract.cameras if other.depth is None]
                others = f"set cameras=[{','.join(bare)}], or " if bare else ""
                raise ValueError(
                    f"Camera {camera.name!r} has {camera.depth} depth already, which an estimate "
                    f"would replace; {others}set replace_depth=true."
                )
        return names

    def contract(self, contract: Contract) -> Contract:
        """Returns the contract of the copy."""
        names = set(self.chosen(contract))
        return contract.with_cameras(
            *(
                self._with_depth(camera) if camera.name in names else camera
                for camera in contract.cameras
            )
        )

    def _with_depth(self, camera: Camera) -> Camera:
        return replace(camera, depth="estimated", depth_unit_m=self.depth_unit_m)

    def counts(self, images: Array) -> NDArray[np.uint16]:
        """Estimates the depth of images (N, H, W, 3) uint8.

        Returns:
            (N, H, W) in `depth_unit_m`; 0 if the estimate is not finite, not positive or too large.
        """
        metres = np.asarray(self.estimator(images), np.float64)
        if metres.shape != images.shape[:3]:
            raise ValueError(
                f"{self.model} returned depth of shape {metres.shape} for images of shape "
                f"{images.shape}."
            )
        known = np.isfinite(metres) & (metres > 0) & (metres <= self.farthest_m)
        return np.rint(np.where(known, metres, 0.0) / self.depth_unit_m).astype(np.uint16)

    def size(self, episode: StoredEpisode) -> int:
        """Returns the size of the new depth of an episode in bytes."""
        shapes = (
            episode.entries[f"rgb/{name}"].shape
            for name in self.chosen(episode.attributes.contract)
        )
        return sum(2 * frames * height * width for frames, height, width, _ in shapes)


def estimate_depth(store: EpisodeStore, path: Path, estimation: DepthEstimation) -> EpisodeStore:
    """Creates or completes a copy of a store with estimated depth.

    On the same disk the other arrays are shared.

    Raises:
        ValueError: The copy holds episodes that the store lacks, or depth of another model.
    """
    check_completes(path, store.names())
    # Checks the cameras before anything is written.
    size = sum(estimation.size(episode) for episode in store.episodes())
    copy = EpisodeStore.create(path)
    with exclusive(copy.path):
        copy.remove_leftovers()
        there = set(copy.names())
        for name in sorted(there):
            _check_same(copy.episode(name), estimation)
        missing = [name for name in store.names() if name not in there]
        check_space(copy.path, size if missing else 0)
        # One at a time, since the model uses the whole device.
        for_each_episode(
            lambda name: _estimate(store.episode(name), copy.path, estimation), missing, 1, "depth"
        )
    return copy


def _check_same(episode: StoredEpisode, estimation: DepthEstimation) -> None:
    made = episode.attributes.extra.get("estimated_depth", {}).get("model")
    if made != estimation.model:
        raise ValueError(
            f"{episode.path.parent} has episodes with depth by {made or 'no model'}, not by "
            f"{estimation.model}. Choose another folder."
        )


def _estimate(episode: StoredEpisode, root: Path, estimation: DepthEstimation) -> None:
    episode.check_undamaged()
    old = episode.attributes
    names = estimation.chosen(old.contract)
    extra = {
        **old.extra,
        "estimated_depth": {"of": episode.name, "model": estimation.model, "cameras": names},
    }
    attributes = replace(old, contract=estimation.contract(old.contract), extra=extra)
    replaced = {f"depth/{name}" for name in names}
    with EpisodeWriter(
        root, episode.name, attributes, expected_bytes=estimation.size(episode)
    ) as writer:
        writer.take_over(episode, [key for key in episode.entries if key not in replaced])
        for name in names:
            images = episode.arrays[f"rgb/{name}"]
            for start in range(0, len(images), estimation.batch):
                for row in estimation.counts(images[start : start + estimation.batch]):
                    writer.append(f"depth/{name}", row)
        writer.commit()
