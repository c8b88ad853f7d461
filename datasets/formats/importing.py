"""Import of a foreign data set into a store, episode by episode; it may be repeated."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from stringline.datasets.contract.contract import Contract
from stringline.datasets.files.atomic import NoSpaceError
from stringline.datasets.files.checksums import crc32
from stringline.datasets.formats.foreign import ForeignDataError, ForeignEpisode, Reader, Reference
from stringline.datasets.formats.guard import GuardedReader
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore

ORIGIN = "imported_from"
Origin = tuple[str, str, int, int]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Names of the new episodes, number of those present before, and errors of the others."""

    imported: tuple[str, ...]
    present: int
    refused: Mapping[str, str]


def import_data(reader: Reader, path: Path, store: EpisodeStore, *, task: str = "") -> Outcome:
    """Imports every episode that the store does not have yet.

    An episode is identified by the name of its data set, its file, its number and a checksum of its
    actions. Unreadable episodes are left out and reported. The task is by default the name of the
    data set.

    Raises:
        ValueError: The path is not such a data set, or an option does not fit it.
        NoSpaceError: The disk is full; complete episodes stay.
    """
    store.remove_leftovers()
    source = path.resolve().name
    task = task or path.resolve().stem
    before = store.episodes()
    known = {origin for episode in before if (origin := _origin_of(episode))}
    contract = next(
        (episode.attributes.contract for episode in before if episode.attributes.source == source),
        None,
    )
    imported = []
    present = 0
    refused = {}
    references = list(GuardedReader(reader).episodes(path))
    for reference in tqdm(references, desc="importing", unit="episode", dynamic_ncols=True):
        try:
            episode = reference.read()
            origin = (
                source,
                reference.file,
                reference.number,
                crc32(np.ascontiguousarray(episode.arrays["action"])),
            )
            if origin in known:
                present += 1
                continue
            _check_contract(contract, episode.contract)
            imported.append(_store(store, reference, episode, task, origin))
            known.add(origin)
            contract = contract or episode.contract
        except ForeignDataError as error:
            refused[str(reference)] = str(error)
            _log.warning("Left out: %s: %s", reference, error)
    return Outcome(tuple(imported), present, refused)


def _origin_of(episode: StoredEpisode) -> Origin | None:
    """Returns the origin of an imported episode, or None."""
    kept: Mapping[str, Any] | None = episode.attributes.extra.get(ORIGIN)
    return (kept["source"], kept["file"], kept["episode"], kept["action_crc32"]) if kept else None


def _check_contract(common: Contract | None, contract: Contract) -> None:
    if common is not None and (why := common.differences(contract)):
        raise ForeignDataError(f"It does not fit the previous episodes. {' '.join(why)}")


def _store(
    store: EpisodeStore, reference: Reference, episode: ForeignEpisode, task: str, origin: Origin
) -> str:
    """Writes one episode and returns its name; an invalid episode leaves nothing in the store."""
    kept = dict(zip(("source", "file", "episode", "action_crc32"), origin, strict=True))
    attributes = EpisodeAttributes(
        contract=episode.contract,
        task=task,
        seed=reference.number,
        success=episode.success,
        source=origin[0],
        instruction=episode.instruction,
        extra={**episode.extra, ORIGIN: kept},
    )
    with store.writer(attributes, expected_bytes=_size(episode)) as writer:
        try:
            _copy(episode, writer)
            return writer.commit()
        except (ForeignDataError, NoSpaceError):
            raise
        except ValueError as error:  # From the checks of the writer.
            raise ForeignDataError(str(error)) from error


def _copy(episode: ForeignEpisode, writer: EpisodeWriter) -> None:
    for key, array in episode.arrays.items():
        writer.put(key, array)
    for key, frames in episode.images.items():
        count = 0
        for frame in frames():
            writer.append(key, frame)
            count += 1
        if count != len(episode.arrays["time"]):
            raise ForeignDataError(
                f"{key} has {count} frames, the episode has {len(episode.arrays['time'])} steps."
            )


def _size(episode: ForeignEpisode) -> int:
    """Returns the size of an episode in the store in bytes."""
    steps = len(episode.arrays["time"])
    per_step = sum(
        camera.height * camera.width * (3 + 2 * (camera.depth is not None))
        for camera in episode.contract.cameras
    )
    return steps * per_step + sum(array.nbytes for array in episode.arrays.values())
