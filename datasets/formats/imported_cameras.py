"""What an import does to the cameras of each episode: calibration, and images of another size."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.fitted_images import fit_record
from stringline.datasets.cameras.image_size import ImageSize
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.formats.foreign import ForeignEpisode, Frames

_INTRINSICS = "the format has no intrinsics of it; cameras=FILE adds them (`parent: recorded`)"


@dataclass(frozen=True, eq=False)
class ImportedCameras:
    """The options of an import for the cameras; None leaves them as the reader returns them.

    Attributes:
        calibration: Geometry, in addition to the reader's or in its place.
        size: Size of the stored images; intrinsics follow.
    """

    calibration: CameraCalibration | None = None
    size: ImageSize | None = None

    def of(self, episode: ForeignEpisode) -> ForeignEpisode:
        """Returns an episode with calibrated cameras and images of the size.

        Raises:
            ValueError: The calibration or the size does not fit the episode.
        """
        if self.calibration is not None:
            contract = self.calibration.contract(episode.contract, episode.camera_poses)
            new = self.calibration.arrays(contract, episode.arrays, episode.camera_poses)
            episode = replace(episode, contract=contract, arrays={**episode.arrays, **new})
        episode = replace(episode, left_out={**_unused_poses(episode), **episode.left_out})
        return episode if self.size is None else _resized(episode, self.size)

    def changes(self, contract: Contract) -> list[str]:
        """Returns a sentence for each camera of a foreign contract whose intrinsics are scaled."""
        return [] if self.calibration is None else self.calibration.scaled(contract)


def _unused_poses(episode: ForeignEpisode) -> dict[str, str]:
    """Returns why the poses of cameras without geometry are left out."""
    bare = [camera.name for camera in episode.contract.cameras if not camera.has_geometry]
    return {f"pose of {name}": _INTRINSICS for name in bare if name in episode.camera_poses}


def _resized(episode: ForeignEpisode, size: ImageSize) -> ForeignEpisode:
    old = episode.contract
    arrays = dict(episode.arrays)
    images = dict(episode.images)
    for camera in old.cameras:
        key = f"intrinsics/{camera.name}"
        if key in arrays:
            arrays[key] = size.intrinsics(arrays[key], camera)
        for kind in ("rgb", "depth"):
            if (key := f"{kind}/{camera.name}") in images:
                images[key] = partial(_frames, images[key], size, depth=kind == "depth")
    contract = old.with_cameras(*(size.camera(camera) for camera in old.cameras))
    extra = {**episode.extra, **fit_record(old, size)}
    return replace(episode, contract=contract, arrays=arrays, images=images, extra=extra)


def _frames(frames: Frames, size: ImageSize, *, depth: bool) -> Iterator[Array]:
    for image in frames():
        yield size.depth(image) if depth else size.colour(image)
