"""New stores from the episodes of others, which stay unchanged: selections and copies.

- Filter, merge and split select episodes. On the same disk arrays are hard links, so that nothing
  is copied.
- A training copy has the same episodes with images at the training resolution. Intrinsics follow
  the images; all other arrays are copied unchanged.
- A copy with depth estimated from colour images is for data without a depth camera. The contract
  marks such depth as `estimated`, since it must not be taken for a measurement.

Episodes of copies keep their names, so that a later command can complete what an earlier one of the
same kind began.
"""

import fnmatch
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import (
    DepthResampling,
    resample_colour,
    resample_depth,
    resample_intrinsics,
    resample_nearest,
)
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract, EpisodeArrays
from stringline.datasets.editing.edit import duration_s, take_over
from stringline.datasets.files.atomic import check_space, exclusive
from stringline.datasets.loading.sampler import order
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.episode_writer import EpisodeWriter, write_episode
from stringline.datasets.store.store import EpisodeStore, for_each_episode


def check_completes(path: Path, wanted: Collection[str]) -> None:
    """Checks that an output holds no other episodes than those that the command would write.

    Without the check, episodes would stay that were deleted or edited since, and those that belong
    into another output by now would be in both, such as in training and validation.

    Args:
        path: The output; it may be missing.
        wanted: Names of all episodes of the completed output.

    Raises:
        ValueError: It holds other episodes.
    """
    if not path.exists():
        return
    names = EpisodeStore.create(path).names()
    if surplus := sorted(set(names) - set(wanted)):
        listed = ", ".join(surplus[:3]) + (", ..." if len(surplus) > 3 else "")
        raise ValueError(
            f"{path} holds {len(surplus)} of {len(names)} episodes that this command would not "
            f"write there ({listed}): data or settings have changed. Choose another folder, or "
            f"remove it first."
        )


@dataclass(frozen=True)
class Conditions:
    """The conditions of a filter.

    Attributes:
        success: Episodes with unknown success match neither true nor false; None: all episodes.
        task: Name of the task; * matches any text; None: any task.
        source: Source of the actions; * matches any text; None: any source.
        shortest_s: Smallest duration of an episode, s; None: any.
        longest_s: Largest duration of an episode, s; None: any.
    """

    success: bool | None = None
    task: str | None = None
    source: str | None = None
    shortest_s: float | None = None
    longest_s: float | None = None

    def fits(self, episode: StoredEpisode) -> bool:
        """Returns whether an episode meets the conditions."""
        attributes = episode.attributes
        if self.success is not None and attributes.success is not self.success:
            return False
        if not all(
            fnmatch.fnmatchcase(got, pattern or "*")
            for got, pattern in ((attributes.task, self.task), (attributes.source, self.source))
        ):
            return False
        if self.shortest_s is None and self.longest_s is None:
            return True
        return (
            (self.shortest_s or 0.0)
            <= duration_s(episode)
            <= (np.inf if self.longest_s is None else self.longest_s)
        )


def filter_store(store: EpisodeStore, output: Path, wanted: Conditions) -> EpisodeStore:
    """Creates or completes a store of the episodes that meet the conditions.

    Raises:
        ValueError: No episode meets them, or the output holds others.
    """
    kept = [episode for episode in store.episodes() if wanted.fits(episode)]
    if not kept:
        raise ValueError(f"None of the {len(store)} episodes in {store.path} meets {wanted}.")
    check_completes(output, [episode.name for episode in kept])
    return _collect(kept, output)


def merge(stores: Sequence[EpisodeStore], output: Path) -> EpisodeStore:
    """Creates or completes a store of the episodes of several stores with the same contract."""
    episodes = [episode for store in stores for episode in store.episodes()]
    if not episodes:
        raise ValueError(
            "There are no episodes to merge in: "
            f"{', '.join(str(store.path) for store in stores) or 'no stores'}."
        )
    first = episodes[0]
    for episode in episodes:
        if why := first.attributes.contract.differences(episode.attributes.contract):
            raise ValueError(f"{first.path} and {episode.path} cannot be merged. {' '.join(why)}")
    return _collect(episodes, output)


def split_store(
    store: EpisodeStore, outputs: Mapping[Path, float], *, seed: int = 0
) -> list[EpisodeStore]:
    """Splits the episodes of a store randomly into new stores; continues after an interruption.

    Args:
        store: The data.
        outputs: Shares of the new stores by their folders, with the sum 1.
        seed: Seed of the random order.

    Raises:
        ValueError: Shares are wrong, or an output holds episodes that belong into another one.
    """
    shares = np.array(list(outputs.values()), np.float64)
    if not len(shares) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"The shares are {list(outputs.values())}; allowed: positive numbers with the sum 1."
        )
    episodes = store.episodes()
    edges = [0, *np.rint(np.cumsum(shares) * len(episodes)).astype(int).tolist()]
    places = order(seed, 0, len(episodes)).tolist()
    dealt = [sorted(places[start:stop]) for start, stop in itertools.pairwise(edges)]
    for path, chosen in zip(outputs, dealt, strict=True):
        if not chosen:
            raise ValueError(
                f"A share of {outputs[path]} of {len(episodes)} episodes leaves none for {path}."
            )
        check_completes(path, [episodes[place].name for place in chosen])
    return [
        _collect([episodes[place] for place in chosen], path)
        for path, chosen in zip(outputs, dealt, strict=True)
    ]


def _collect(episodes: Sequence[StoredEpisode], path: Path) -> EpisodeStore:
    """Adds episodes under their names to a store, except those that it has already.

    Its own episodes are among them if it is one of the merged stores. They are not added: another
    command may have removed them since they were listed.
    """
    store = EpisodeStore.create(path)
    with exclusive(store.path):
        store.remove_leftovers()
        there = set(store.names())
        for episode in episodes:
            own = episode.path.parent.resolve() == store.path.resolve()
            if not own and episode.name not in there:
                take_over(episode, store.path, episode.name, episode.attributes)
                there.add(episode.name)  # Several stores may contain the episode.
    return store


_IMAGES = ("rgb", "depth", "segmentation")
_OF_CAMERA = ("rgb", "depth", "segmentation", "frame", "time", "intrinsics", "T_base_camera")


@dataclass(frozen=True)
class Resolution:
    """The images of a training copy.

    Attributes:
        height: Rows of the new images.
        width: Columns of the new images.
        cameras: Cameras to keep, such as [overhead,wrist_left]; None: all.
        depth_method: Depth of a new pixel: nearest_valid, valid_mean, nearest, or none: colours
            only.
    """

    height: int
    width: int
    cameras: Sequence[str] | None = None
    depth_method: DepthResampling | Literal["none"] = "nearest_valid"

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ValueError(
                f"The training resolution is {self.height}x{self.width}; allowed: positive numbers."
            )
        ways = (*get_args(DepthResampling), "none")
        if self.depth_method not in ways:
            raise unknown_name("way to resample depth", self.depth_method, ways)

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
        source = None if self.depth_method == "none" else camera.depth
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
        if kind == "depth" and self.depth_method != "none":
            return resample_depth(arrays[key], self.height, self.width, self.depth_method)
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
        if kind == "depth" and self.depth_method == "none":
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
            _check_same_images(store, copy, name, resolution)
        missing = [name for name in store.names() if name not in set(there)]
        check_space(copy.path, sum(resolution.size(store.episode(name)) for name in missing))
        for_each_episode(
            lambda name: _copy(store.episode(name), copy.path, resolution),
            missing,
            workers,
            "cache",
        )
    return copy


def _check_same_images(
    store: EpisodeStore, copy: EpisodeStore, name: str, resolution: Resolution
) -> None:
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
        "depth": resolution.depth_method,
    }
    old = episode.attributes
    attributes = replace(
        old, contract=resolution.contract(old.contract), extra={**old.extra, "cache": made}
    )
    arrays = resolution.arrays(episode)
    write_episode(root, episode.name, attributes, arrays.items(), resolution.size(episode))


# Function of images (N, H, W, 3) uint8 that returns depth (N, H, W) in metres along the optical
# axis; not finite if unknown.
Estimator = Callable[[Array], NDArray[np.floating]]


@dataclass(frozen=True)
class DepthEstimation:
    """Settings of a depth estimation.

    Attributes:
        model: Folder of the model, or its name on the hub; an attribute of the episodes.
        cameras: Cameras for which depth is estimated, such as [top]; None: all.
        replace_depth: Whether existing depth is replaced.
        depth_unit_m: Unit of the stored depth, m.
        farthest_m: Larger estimates, m, are stored as 0 (no return).
        batch: Images per call of the model.
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
            raise ValueError(f"batch must be an integer of at least 1 (got {self.batch}).")
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
            _check_same_depth(copy.episode(name), estimation)
        missing = [name for name in store.names() if name not in there]
        check_space(copy.path, size if missing else 0)
        # One at a time, since the model uses the whole device.
        for_each_episode(
            lambda name: _estimate(store.episode(name), copy.path, estimation), missing, 1, "depth"
        )
    return copy


def _check_same_depth(episode: StoredEpisode, estimation: DepthEstimation) -> None:
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
