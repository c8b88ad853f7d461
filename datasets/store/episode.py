"""A stored episode: its attributes, and its arrays, memory-mapped on demand."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.store.transactions import removed_copies
from stringline.datasets.store.zarr_layout import (
    EPISODE_KEY,
    FORMAT_VERSION,
    ROWS_FILE,
    ArrayEntry,
    DamagedError,
    array_metadata,
    array_name,
    check_no_links,
    checksummed_group,
    crc32,
    crc32_of_rows,
    cut_attribute,
    map_array,
    read_group,
    read_metadata,
)

INTERVENTIONS = "interventions"
"""Entry of `extra` of an episode in which a policy acts: the parts in which an expert or a person
leads in its place, as pairs of the first step and the step after the last."""

_FIELDS = ("task", "seed", "success", "source", "instruction")


@dataclass(frozen=True)
class EpisodeAttributes:
    """The attributes of an episode.

    Attributes:
        contract: Contract of its arrays.
        success: Whether the task was achieved; None if unknown.
        source: Source of the actions: `expert`, `teleoperation`, `deployment`, `policy`, or the
            name of an imported data set.
        instruction: The instruction in words.
        extra: Any other plain JSON.
    """

    contract: Contract
    task: str
    seed: int
    success: bool | None = None
    source: str = "expert"
    instruction: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"The seed is {self.seed}; allowed: 0 and above.")
        if not self.task:
            raise ValueError("An episode needs the name of its task.")

    @property
    def interventions(self) -> list[tuple[int, int]] | None:
        """The parts in which an expert or a person leads; None in an episode without a policy."""
        parts = self.extra.get(INTERVENTIONS)
        return None if parts is None else [(int(first), int(last)) for first, last in parts]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON; `cameras` repeats the names of the contract for other readers."""
        return {
            "contract": self.contract.to_dict(),
            "cameras": [camera.name for camera in self.contract.cameras],
            **{key: getattr(self, key) for key in _FIELDS},
            "extra": dict(self.extra),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], contract: Contract | None = None) -> Self:
        """Builds attributes from the result of `to_dict`; raises ValueError for a missing field.

        `contract` replaces that in `plain`.
        """
        try:
            fields = {key: plain[key] for key in (*_FIELDS, "extra")}
            return cls(contract=contract or _contract(plain["contract"]), **fields)
        except KeyError as error:
            raise ValueError(f"The attributes of the episode lack {error}.") from error


def task_names(episodes: Sequence[EpisodeAttributes]) -> tuple[str, ...]:
    """Returns the task of each episode of a store.

    An import gives its episodes one task, so where all have the same, their instructions tell tasks
    apart.
    """
    if len({each.task for each in episodes}) > 1 or len({e.instruction for e in episodes}) < 2:
        return tuple(each.task for each in episodes)
    return tuple(each.instruction or each.task for each in episodes)


_recent: list[tuple[Mapping[str, Any], Contract]] = []


def _contract(plain: Mapping[str, Any]) -> Contract:
    """Returns a contract, a recent one if equal: the episodes of a store share few contracts."""
    for known, contract in _recent:
        if known == plain:
            return contract
    contract = Contract.from_dict(plain)
    _recent.append((plain, contract))
    del _recent[:-16]
    return contract


@lru_cache(16)
def _contract_of(text: bytes) -> Contract:
    return _contract(json.loads(text))


class MappedArrays(Mapping[str, Array]):
    """The read-only arrays of an episode by key, memory-mapped on access."""

    def __init__(self, path: Path, entries: Mapping[str, ArrayEntry]) -> None:
        self._path = path
        self._entries = entries

    def __getitem__(self, key: str) -> Array:
        if key not in self._entries:
            raise KeyError(str(unknown_name("array", key, self._entries)))
        entry = self._entries[key]
        try:
            return map_array(self._path, key, entry)
        except ValueError:
            if self._path.is_dir():
                raise
            for kept in removed_episodes(self._path):
                if kept.entries == self._entries:
                    return map_array(kept.path, key, entry)
            raise

    def __contains__(self, key: object) -> bool:
        return key in self._entries  # `Mapping` would read the array.

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class StoredEpisode:
    """A complete episode in a store; `version` is that of the store format."""

    name: str
    path: Path
    attributes: EpisodeAttributes

    @cached_property
    def entries(self) -> Mapping[str, ArrayEntry]:
        """Shape, type and checksum of each array by key, read on first access.

        Reading them at once would take most of the time of opening ten thousand episodes.
        """
        try:
            return _entries_at(self.path)
        except DamagedError:
            if (kept := self.kept()) is None:
                raise
            return kept.entries

    def kept(self) -> "StoredEpisode | None":
        """Returns the copy of this episode if an edit has removed it."""
        if self.path.is_dir():
            return None
        copies = removed_episodes(self.path)
        return next((each for each in copies if each.attributes == self.attributes), None)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays by key, memory-mapped on access."""
        return MappedArrays(self.path, self.entries)

    @property
    def steps(self) -> int:
        """Length of the time axis."""
        return self.entries["time"].shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(entry.nbytes for entry in self.entries.values())

    def damaged(self) -> list[str]:
        """Reads all arrays and metadata, and returns one sentence for each damaged one."""
        if kept := self.kept():
            return kept.damaged()
        return [
            sentence
            for key, entry in self.entries.items()
            for sentence in self._damaged(key, entry)
        ]

    def _damaged(self, key: str, entry: ArrayEntry) -> Iterator[str]:
        folder = self.path / array_name(key)
        try:
            array = self.arrays[key]
        except ValueError as error:
            yield str(error)
        else:
            rows = (folder / ROWS_FILE).read_bytes() if (folder / ROWS_FILE).is_file() else None
            got = crc32(array)
            intact = rows is None or rows == crc32_of_rows(array)
            if got != entry.crc32:
                frames = "" if rows is None or intact else _differing(rows, crc32_of_rows(array))
                yield (
                    f"Episode {self.name}: {key} has checksum {got:08x} instead of "
                    f"{entry.crc32:08x}{frames}."
                )
            elif not intact:
                yield (
                    f"Episode {self.name}: the checksums of the rows of {key} are damaged "
                    f"({folder / ROWS_FILE})."
                )
        metadata = folder / "zarr.json"
        if not metadata.is_file() or metadata.read_bytes() != array_metadata(entry):
            yield f"Episode {self.name}: the zarr.json of {key} was changed ({metadata})."

    def check_undamaged(self) -> None:
        """Checks all arrays, since a derived episode would get new, valid checksums."""
        if found := self.damaged():
            raise ValueError(" ".join(found))


def _differing(written: bytes, got: bytes) -> str:
    """Describes the rows whose checksums differ."""
    if len(written) != len(got):
        return ""
    rows = np.flatnonzero(np.frombuffer(written, "<u4") != np.frombuffer(got, "<u4"))
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"; frame {rows[0]}{more}"


def episode_metadata(attributes: EpisodeAttributes, entries: Mapping[str, ArrayEntry]) -> bytes:
    """Returns the `zarr.json` of an episode."""
    arrays = {key: entry._asdict() for key, entry in entries.items()}
    return checksummed_group(
        {EPISODE_KEY: FORMAT_VERSION, **attributes.to_dict(), "arrays": arrays}
    )


def write_metadata(
    path: Path, attributes: EpisodeAttributes, entries: Mapping[str, ArrayEntry]
) -> None:
    """Writes the `zarr.json` files of an episode whose chunks are in place."""
    for key, entry in entries.items():
        (path / array_name(key)).mkdir(exist_ok=True)
        (path / array_name(key) / "zarr.json").write_bytes(array_metadata(entry))
    (path / "zarr.json").write_bytes(episode_metadata(attributes, entries))


def read_episode(path: Path) -> StoredEpisode:
    """Opens an episode by its metadata, without reading arrays."""
    where = f"Episode {path.name}"
    data = _metadata(path)
    # Of a checksummed file; episodes share few contracts, and most readers need no entries.
    rest, arrays = cut_attribute(data, "arrays")
    rest, contract = cut_attribute(rest, "contract")
    plain = read_group(data, where, EPISODE_KEY, rest)
    try:
        known = _contract_of(contract) if contract else None
        attributes = EpisodeAttributes.from_dict(plain, known)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"{where} is damaged: {error}") from error
    if not arrays:  # The entries may be damaged.
        entries_of(plain, path.name)
    return StoredEpisode(path.name, path, attributes)


def _entries_at(path: Path) -> dict[str, ArrayEntry]:
    data = _metadata(path)
    rest, arrays = cut_attribute(data, "arrays")
    rest, _ = cut_attribute(rest, "contract")
    plain = read_group(data, f"Episode {path.name}", EPISODE_KEY, rest)
    entries = entries_of({"arrays": json.loads(arrays)} if arrays else plain, path.name)
    check_no_links(path, entries)
    return entries


def removed_episodes(path: Path) -> Iterator[StoredEpisode]:
    """Opens the copies of an episode that an edit removed from `path`."""
    for copy in removed_copies(path):
        with contextlib.suppress(DamagedError):
            yield read_episode(copy)


def _metadata(path: Path) -> bytes:
    if os.path.islink(path):
        raise DamagedError(f"Episode {path.name} is a symbolic link; stores have none.")
    try:
        return read_metadata(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError(f"Episode {path.name} is damaged: its zarr.json is missing.") from error


def entries_of(plain: Mapping[str, Any], name: str) -> dict[str, ArrayEntry]:
    """Returns shape, type and checksum of each array from the attributes of an episode."""
    try:
        return {key: ArrayEntry.from_dict(entry) for key, entry in plain["arrays"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"Episode {name} is damaged: its zarr.json is incomplete ({error!r})."
        ) from error
