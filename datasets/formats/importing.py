"""Import of a foreign data set into a store, episode by episode; it may be repeated.

The episodes are read twice: first without images, to find the contract of the majority, then to
copy them. Any error of a reader costs only the episode in which it occurs. The options for the
cameras add a calibration and give the images another size.
"""

import hashlib
import logging
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.resampling import ImageSize, fit_record
from stringline.datasets.contract.contract import SERIES, Array, Contract
from stringline.datasets.files.atomic import NoSpaceError, exclusive
from stringline.datasets.formats.checks import STAMPS, blamed_on_data, check_rate
from stringline.datasets.formats.conversions import described, distances_mm
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reader,
    Reference,
    SkippedFields,
    error_kind,
)
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore

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

    def of(self, episode: ImportedEpisode) -> ImportedEpisode:
        """Returns an episode with calibrated cameras and images of the size.

        Raises:
            ValueError: The calibration or the size does not fit the episode.
        """
        if self.calibration is not None:
            contract = self.calibration.contract(episode.contract, episode.camera_poses)
            new = self.calibration.arrays(contract, episode.arrays, episode.camera_poses)
            episode = replace(episode, contract=contract, arrays={**episode.arrays, **new})
        episode = replace(
            episode, skipped_fields={**_unused_poses(episode), **episode.skipped_fields}
        )
        return episode if self.size is None else _resized(episode, self.size)

    def changes(self, contract: Contract) -> list[str]:
        """Returns a sentence for each camera of a foreign contract whose intrinsics are scaled."""
        return [] if self.calibration is None else self.calibration.scaled(contract)


def _unused_poses(episode: ImportedEpisode) -> dict[str, str]:
    """Returns why the poses of cameras without geometry are left out."""
    bare = [camera.name for camera in episode.contract.cameras if not camera.has_geometry]
    return {f"pose of {name}": _INTRINSICS for name in bare if name in episode.camera_poses}


def _resized(episode: ImportedEpisode, size: ImageSize) -> ImportedEpisode:
    old = episode.contract
    arrays = dict(episode.arrays)
    images = dict(episode.images)
    for camera in old.cameras:
        key = f"intrinsics/{camera.name}"
        if key in arrays:
            arrays[key] = size.intrinsics(arrays[key], camera)
        for kind in ("rgb", "depth"):
            if (key := f"{kind}/{camera.name}") in images:
                images[key] = partial(_resized_frames, images[key], size, depth=kind == "depth")
    contract = old.with_cameras(*(size.camera(camera) for camera in old.cameras))
    extra = {**episode.extra, **fit_record(old, size)}
    return replace(episode, contract=contract, arrays=arrays, images=images, extra=extra)


def _resized_frames(frames: Frames, size: ImageSize, *, depth: bool) -> Iterator[Array]:
    for image in frames():
        yield size.depth(image) if depth else size.colour(image)


ORIGIN = "imported_from"
SKIPPED_FIELDS = "skipped_fields"
"""Attribute `extra` of an episode: why parts of the foreign episode were left out, by name."""
_CONTENT = ("action", "joints/position")
Item = TypeVar("Item")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """Where an imported episode comes from.

    Attributes:
        source: Name of the data set.
        file: Its file.
        episode: Its number in the data set, which changes if others are deleted.
        content: Digest of its actions and joint positions.
    """

    source: str
    file: str
    episode: int
    content: str


def content_of(arrays: Mapping[str, Array]) -> str:
    """Returns the digest of the actions and joint positions of an episode.

    Images are left out: tools that delete episodes of a data set encode its videos again.
    """
    digest = hashlib.sha256()
    for key in _CONTENT:
        values = np.ascontiguousarray(arrays.get(key, np.empty(0, np.float32)))
        digest.update(f"{key} {values.dtype} {values.shape} ".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Outcome:
    """The result of an import.

    Attributes:
        imported: Names of the new episodes.
        present: Number of those present before.
        refused: Errors of the others, by their name in messages.
        skipped_fields: By name and reason, the number of new episodes that lack a part of their
            data.
    """

    imported: tuple[str, ...]
    present: int
    refused: Mapping[str, str]
    skipped_fields: SkippedFields


@dataclass(frozen=True)
class _Readable:
    """An episode that can be read, at least without its images, and takes `size` bytes."""

    reference: Reference
    contract: Contract
    origin: Origin
    distances_mm: Mapping[str, float]
    size: int


class _Refused(dict[str, str]):
    """Errors by the name of the episode, and the kinds of errors that have been printed."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = set[str]()


def import_data(
    reader: Reader,
    path: Path,
    store: EpisodeStore,
    *,
    task: str = "",
    cameras: ImportedCameras | None = None,
    disk_gib: float = math.inf,
) -> Outcome:
    """Imports every episode that the store does not have yet, under the lock of the store.

    An episode is known by its actions and joint positions (`content_of`): the same data set under
    another name, or after a deletion that renumbers it, adds nothing. Episodes of equal content are
    as many in the store as in the data set. The episodes have the contract of an earlier import of
    the data set, or else that of the majority. Unreadable episodes and those with another contract
    are left out and reported. The task is by default the name of the data set. The new episodes may
    take `disk_gib` GiB.

    Raises:
        ValueError: The path is not such a data set, an option does not fit it, or the new episodes
            would take more of the disk; none is stored then.
        NoSpaceError: The disk is full; complete episodes stay.
    """
    with exclusive(store.path):
        return import_locked(reader, path, store, task, cameras, disk_gib)


def import_locked(
    reader: Reader,
    path: Path,
    store: EpisodeStore,
    task: str,
    cameras: ImportedCameras | None,
    disk_gib: float,
) -> Outcome:
    """Imports as `import_data` does; the caller holds the lock of the store."""
    source = path.resolve().name
    refused = _Refused()
    store.remove_leftovers()
    before = store.episodes()
    readable = _survey(reader, path, source, refused, cameras)
    contract = _common_contract(before, readable, source)
    known = Counter(origin.content for each in before if (origin := origin_of(each)))
    new = list(_new(readable, known))
    _report_equal(readable)
    _report_distances(readable)
    _check_size([each.size for each in new if each.contract == contract], store, disk_gib)
    imported: list[str] = []
    parts: SkippedFields = Counter()
    for entry in _with_progress(new, "importing"):
        with _noted_refusal(entry.reference, refused):
            _check_contract(contract, entry.contract)
            name = task or path.resolve().stem
            episode = _read(entry.reference, cameras)
            imported.append(_store(store, episode, name, entry.origin, tell=not imported))
            parts.update(episode.skipped_fields.items())
    return Outcome(tuple(imported), len(readable) - len(new), dict(refused), parts)


def _with_progress(items: Sequence[Item], title: str) -> Iterable[Item]:
    return tqdm(items, desc=title, unit="episode", dynamic_ncols=True)


def _survey(
    reader: Reader,
    path: Path,
    source: str,
    refused: _Refused,
    cameras: ImportedCameras | None,
) -> list[_Readable]:
    """Reads all episodes without their images and adds the unreadable ones to `refused`.

    Raises:
        ValueError: Every episode is unreadable, and not because of its contents: an option is
            wrong.
    """
    found: list[_Readable] = []
    wrong_option: BaseException | None = None
    with blamed_on_data():
        references = list(reader.episodes(path))
    for reference in _with_progress(references, "reading"):
        with _noted_refusal(reference, refused):
            try:
                episode = _read(reference, cameras, tell=not found)
            except ForeignDataError as error:
                wrong_option = wrong_option or _wrong_option(error)
                raise
            content = content_of(episode.arrays)
            origin = Origin(source, reference.file, reference.number, content)
            apart = distances_mm(episode)
            size = _size(episode)
            found.append(_Readable(reference, episode.contract, origin, apart, size))
    if wrong_option is not None and not found:
        raise ValueError(str(wrong_option)) from wrong_option
    return found


def _wrong_option(error: ForeignDataError) -> ForeignDataError | None:
    """Returns the error if it comes from one that does not blame the data."""
    cause = error.__cause__
    return error if type(cause) is ValueError else None


@contextmanager
def _noted_refusal(reference: Reference, refused: _Refused) -> Iterator[None]:
    """Reports an episode whose data are wrong, each kind of error once, and goes on."""
    try:
        yield
    except ForeignDataError as error:
        kind = error_kind(str(reference), str(error))
        level = logging.DEBUG if kind in refused.kinds else logging.WARNING
        refused.kinds.add(kind)
        refused[str(reference)] = str(error)
        _log.log(level, "Left out: %s: %s", reference, error)


def _read(
    reference: Reference, cameras: ImportedCameras | None, *, tell: bool = False
) -> ImportedEpisode:
    """Reads an episode, with the options for cameras; `tell` what these change."""
    with blamed_on_data():
        episode = reference.read()
        for key, series in episode.arrays.items():
            if key.startswith(SERIES) and key.rpartition("/")[2] in STAMPS:
                check_rate(key, series, episode.contract.control_hz)
        if cameras is None:
            return episode
        found = cameras.of(episode)
        for sentence in cameras.changes(episode.contract) if tell else ():
            _log.info("%s", sentence)
        return found


def _frames(read: Frames) -> Iterator[Array]:
    with blamed_on_data():
        yield from read()


def _common_contract(
    before: Iterable[StoredEpisode], readable: Sequence[_Readable], source: str
) -> Contract | None:
    """Returns the contract of an earlier import of the source, else that of the majority."""
    for episode in before:
        if episode.attributes.source == source:
            return episode.attributes.contract
    for contract, count in Counter(entry.contract for entry in readable).most_common(1):
        words = ", ".join(contract.described())
        _log.info("Contract of %d of %d episodes: %s.", count, len(readable), words)
        return contract
    return None


def origin_of(episode: StoredEpisode) -> Origin | None:
    """Returns the origin of an imported episode, or None."""
    kept: Mapping[str, Any] | None = episode.attributes.extra.get(ORIGIN)
    return Origin(**kept) if kept else None


def _report_equal(readable: Sequence[_Readable]) -> None:
    """Warns of episodes of one data set that have the same actions and joint positions."""
    groups: dict[str, list[Reference]] = {}
    for entry in readable:
        groups.setdefault(entry.origin.content, []).append(entry.reference)
    equal = [group for group in groups.values() if len(group) > 1]
    if equal:
        _log.warning(
            "%d episodes have the actions and joint positions of another one, such as %s and %s. "
            "All are imported; if they are copies, stringline-data delete removes them.",
            sum(map(len, equal)) - len(equal),
            *equal[0][:2],
        )


def _report_distances(readable: Sequence[_Readable]) -> None:
    """Logs how far recorded gripper poses are from the kinematics."""
    medians: dict[str, list[float]] = {}
    for entry in readable:
        for key, distance in entry.distances_mm.items():
            medians.setdefault(key, []).append(distance)
    if medians:
        for far, sentence in described(medians, readable[0].contract.embodiment):
            _log.log(logging.WARNING if far else logging.INFO, "%s", sentence)


def _check_contract(common: Contract | None, contract: Contract) -> None:
    if common is not None and (why := common.differences(contract)):
        raise ForeignDataError(f"It does not fit the other episodes. {' '.join(why)}")


def _store(
    store: EpisodeStore, episode: ImportedEpisode, task: str, origin: Origin, *, tell: bool
) -> str:
    """Copies one episode and returns its name; an invalid episode leaves nothing in the store.

    The seed is the number in the data set. `tell` its depth, by which users check the unit.
    """
    skipped_fields = (
        {SKIPPED_FIELDS: dict(episode.skipped_fields)} if episode.skipped_fields else {}
    )
    attributes = EpisodeAttributes(
        contract=episode.contract,
        task=task,
        seed=origin.episode,
        success=episode.success,
        source=origin.source,
        instruction=episode.instruction,
        extra={**episode.extra, **skipped_fields, ORIGIN: asdict(origin)},
    )
    with store.writer(attributes, expected_bytes=_size(episode)) as writer:
        try:
            _copy(episode, writer, tell=tell)
            return writer.commit()
        except (ForeignDataError, NoSpaceError):
            raise
        except ValueError as error:  # From the checks of the writer.
            raise ForeignDataError(str(error)) from error


def _copy(episode: ImportedEpisode, writer: EpisodeWriter, *, tell: bool) -> None:
    for key, array in episode.arrays.items():
        writer.put(key, array)
    for key, frames in episode.images.items():
        count = 0
        for frame in _frames(frames):
            if tell and not count and key.startswith("depth/"):
                _log.info("%s", _described_depth(key, frame, episode.contract))
            writer.append(key, frame)
            count += 1
        expected = len(episode.arrays[f"time/{key.partition('/')[2]}"])
        if count != expected:
            raise ForeignDataError(f"{key} has {count} frames; expected: {expected}.")


def _described_depth(key: str, counts: Array, contract: Contract) -> str:
    """Describes the first depth image of a camera in metres."""
    unit = contract.camera(key.partition("/")[2]).depth_unit_m
    known = unit * counts[counts > 0].astype(float)
    if not known.size:
        return f"{key}: the first image has no depth."
    low, middle, high = np.quantile(known, [0, 0.5, 1])
    return f"{key}: the first image has {low:.3f} to {high:.3f} m, half of it above {middle:.3f} m."


def _size(episode: ImportedEpisode) -> int:
    """Returns the size of an episode in the store in bytes."""
    images = sum(
        len(episode.arrays[f"time/{camera.name}"])
        * (camera.height * camera.width * (3 + 2 * (camera.depth is not None)))
        for camera in episode.contract.cameras
    )
    return images + sum(array.nbytes for array in episode.arrays.values())


def _new(readable: Sequence[_Readable], known: Mapping[str, int]) -> Iterator[_Readable]:
    """Yields the episodes whose content the store does not have as often."""
    left = Counter(known)
    for entry in readable:
        if left[entry.origin.content]:
            left[entry.origin.content] -= 1
        else:
            yield entry


def _check_size(sizes: Sequence[int], store: EpisodeStore, disk_gib: float) -> None:
    """Tells how much of the disk new episodes of the sizes in bytes take, and checks it.

    Raises:
        ValueError: It is more than `disk_gib`.
    """
    needed = sum(sizes) / 2**30
    free = shutil.disk_usage(store.path).free / 2**30
    text = f"{len(sizes)} new episodes take {needed:.3g} GiB"
    if needed > disk_gib:
        raise ValueError(
            f"{text} in {store.path}, which keeps decoded images; {free:.3g} GiB are free. "
            f"Allowed: disk_gib={disk_gib:g}. Store smaller images, image_size=[ROWS,COLUMNS] "
            "image_fit=resize, or fewer cameras, format.cameras={NAME: NEW_NAME}, or allow more, "
            f"disk_gib={math.ceil(needed)}."
        )
    if sizes:
        _log.info("%s with decoded images; %.3g GiB are free.", text, free)
