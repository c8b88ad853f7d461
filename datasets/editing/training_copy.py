"""Training copies of a store: the same episodes with images at the training resolution.

Intrinsics follow the images; all other arrays are copied unchanged. Episodes keep their names, so
that a copy can be completed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from stringline.datasets.cameras.resampling import (
    DepthResampling,
    resample_colour,
    resample_depth,
    resample_intrinsics,
    resample_nearest,
)
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract, EpisodeArrays
from stringline.datasets.editing.completion import check_completes
from stringline.datasets.files.atomic import check_space
from stringline.datasets.files.lock import exclusive
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.episode_pool import for_each_episode
from stringline.datasets.store.episode_writer import write_episode
from stringline.datasets.store.store import EpisodeStore

_IMAGES = ("rgb", "depth", "segmentation")
_OF_CAMERA = ("rgb", "depth", "segmentation", "frame", "time", "intrinsics", "T_base_camera")


@dataclass(frozen=True)
class Resolution:
    """Rows and columns of a training copy, its cameras (None: all), and the method for depth.

    With depth `none` the copy has colours only.
    """

    height: int
    width: int
    cameras: Sequence[str] | None = None
    depth: DepthResampling | Literal["none"] = "nearest_valid"

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ValueError(
                f"The training resolution is {self.height}x{self.width}; allowed: positive numbers."
            )
        ways = (*get_args(DepthResampling), "none")
        if self.depth not in ways:
            raise unknown_name("way to resample depth", self.depth, ways)

    def contract(self, contract: Contract) -> Contract:
        """Returns the contract of the copy."""
        names = (
            [camera.name for camera in contract.cameras] if self.cameras is None else self.cameras
        )
        return contract.with_cameras(*(self._smaller(contract.camera(name)) for name in names))

    def _smaller(self, camera: Camera) -> Camera:
        if camera.height < self.height or camera.width < self.width:
            raise ValueError(
                f"Camera {camera.name!r} was recorded at {camera.height}x{camera.width}, smaller "
                f"than a training copy at {self.height}x{self.width}. Choose at most the recorded "
                "size."
            )
        source = None if self.depth == "none" else camera.depth
        return replace(camera, height=self.height, width=self.width, depth=source)

    def arrays(self, episode: StoredEpisode) -> dict[str, Array]:
        """Returns the arrays of the copy of an episode."""
        old = episode.attributes.contract
        new = self.contract(episode.attributes.contract)
        dropped = {camera.name for camera in old.cameras} - {camera.name for camera in new.cameras}
        kept = (key for key in episode.arrays if self._keeps(key, dropped))
        return {key: self._array(key, episode.arrays, old) for key in kept}

    def _array(self, key: str, arrays: EpisodeArrays, old: Contract) -> Array:
        kind, _, name = key.partition("/")
        camera = next((camera for camera in old.cameras if camera.name == name), None)
        if camera is None or (camera.height, camera.width) == (self.height, self.width):
            return arrays[key]
        if kind == "rgb":
            return resample_colour(arrays[key], self.height, self.width)
        if kind == "depth" and self.depth != "none":
            return resample_depth(arrays[key], self.height, self.width, self.depth)
        if kind == "segmentation":
            return resample_nearest(arrays[key], self.height, self.width)
        if kind == "intrinsics":
            return resample_intrinsics(
                arrays[key], (camera.height, camera.width), (self.height, self.width)
            )
        return arrays[key]

    def size(self, episode: StoredEpisode) -> int:
        """Returns the size of the copy of an episode in bytes."""
        old = episode.attributes.contract
        new = self.contract(episode.attributes.contract)
        sizes = {camera.name: camera.height * camera.width for camera in old.cameras}
        kept = {camera.name for camera in new.cameras}
        total = 0
        for key, entry in episode.entries.items():
            kind, _, name = key.partition("/")
            if not self._keeps(key, sizes.keys() - kept):
                continue
            image = kind in _IMAGES and name in kept
            total += (
                entry.nbytes // sizes[name] * (self.height * self.width) if image else entry.nbytes
            )
        return total

    def _keeps(self, key: str, dropped: set[str]) -> bool:
        """Returns whether the copy has an array; the cameras `dropped` have none."""
        kind, _, name = key.partition("/")
        if kind == "depth" and self.depth == "none":
            return False
        return kind not in _OF_CAMERA or name not in dropped


def cache(
    store: EpisodeStore, path: Path, resolution: Resolution, *, workers: int = 2
) -> EpisodeStore:
    """Creates or completes a training copy of a store in the folder `path`.

    Raises:
        ValueError: The folder holds episodes that the store lacks, or of another resolution.
    """
    check_completes(path, store.names())
    copy = EpisodeStore.create(path)
    with exclusive(copy.path):
        copy.remove_leftovers()
        there = copy.names()
        for name in there:
            _check_same(store, copy, name, resolution)
        missing = [name for name in store.names() if name not in set(there)]
        check_space(copy.path, sum(resolution.size(store.episode(name)) for name in missing))
        for_each_episode(
            lambda name: _copy(store.episode(name), copy.path, resolution),
            missing,
            workers,
            "cache",
        )
    return copy


def _check_same(store: EpisodeStore, copy: EpisodeStore, name: str, resolution: Resolution) -> None:
    wanted = resolution.contract(store.episode(name).attributes.contract)
    got = copy.episode(name).attributes.contract
    if wanted != got:
        sizes = [
            ", ".join(f"{camera.name} {camera.height}x{camera.width}" for camera in each.cameras)
            for each in (got, wanted)
        ]
        raise ValueError(
            f"{copy.path} has images of {sizes[0]}; requested: {sizes[1]}. Choose another folder."
        )


def _copy(episode: StoredEpisode, root: Path, resolution: Resolution) -> None:
    episode.check_undamaged()
    made = {
        "of": episode.name,
        "height": resolution.height,
        "width": resolution.width,
        "depth": resolution.depth,
    }
    old = episode.attributes
    attributes = replace(
        old, contract=resolution.contract(old.contract), extra={**old.extra, "cache": made}
    )
    arrays = resolution.arrays(episode)
    write_episode(root, episode.name, attributes, arrays.items(), resolution.size(episode))
