"""An episode as the store knows it: what it says about itself, and its arrays, mapped on demand."""

import marshal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.files.checksums import ROWS_FILE, crc32, crc32_of_rows
from stringline.datasets.store.checksummed_metadata import sealed_group
from stringline.datasets.store.versions import (
    EPISODE_KEY,
    FIRST_SEALED,
    FORMAT_VERSION,
    DamagedError,
    read_group,
)
from stringline.datasets.store.zarr_layout import ArrayEntry, array_metadata, array_name, map_array

Array = NDArray[Any]


@dataclass(frozen=True)
class EpisodeAttributes:
    """What an episode says about itself.

    Attributes:
        contract: What its arrays look like.
        task: Name of the task.
        seed: The seed that the episode came from; 0 or more.
        success: Whether the task was achieved; None when nobody judged it.
        source: Who acted: `expert`, `teleoperation`, `deployment`, `policy`, or the name of an
            imported set.
        instruction: What was asked for, in words.
        extra: Anything else that is plain JSON.
    """

    contract: Contract
    task: str
    seed: int
    success: bool | None = None
    source: str = "expert"
    instruction: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses seeds and names that no episode name could carry."""
        if self.seed < 0:
            raise ValueError(f"The seed is {self.seed}; allowed: 0 and above.")
        if not self.task:
            raise ValueError("An episode needs the name of its task.")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON; `cameras` repeats the names in the contract for readers without Stringline."""
        fields = {
            key: getattr(self, key) for key in ("task", "seed", "success", "source", "instruction")
        }
        cameras = [camera.name for camera in self.contract.cameras]
        return {
            "contract": self.contract.to_dict(),
            "cameras": cameras,
            **fields,
            "extra": dict(self.extra),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds what `to_dict` wrote.

        Raises:
            ValueError: Something is missing.
        """
        try:
            fields = {
                key: plain[key]
                for key in ("task", "seed", "success", "source", "instruction", "extra")
            }
            return cls(contract=_contract(marshal.dumps(plain["contract"], 2)), **fields)
        except KeyError as error:
            raise ValueError(f"The attributes of the episode lack {error}.") from error


@lru_cache(maxsize=256)
def _contract(plain: bytes) -> Contract:
    """Returns a contract; the episodes of a store share few, and building one takes longer than all else.

    Args:
        plain: The dictionary as `marshal` writes it, the quickest key that tells any two apart. It
            never leaves the process.
    """
    return Contract.from_dict(marshal.loads(plain))


class MappedArrays(Mapping[str, Array]):
    """The arrays of an episode by key, each mapped when it is asked for, read-only."""

    def __init__(self, path: Path, entries: Mapping[str, ArrayEntry]) -> None:
        """Remembers where the arrays lie."""
        self._path = path
        self._entries = entries

    def __getitem__(self, key: str) -> Array:
        """Maps one array.

        Raises:
            KeyError: It does not exist; the message names the nearest ones.
            ValueError: Its file is damaged.
        """
        if key not in self._entries:
            raise KeyError(str(unknown_name("array", key, self._entries)))
        return map_array(self._path, key, self._entries[key])

    def __iter__(self) -> Iterator[str]:
        """Yields the keys."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Returns how many arrays there are."""
        return len(self._entries)


@dataclass(frozen=True)
class StoredEpisode:
    """A complete episode in a store.

    Attributes:
        name: Its name in the store.
        path: Its folder.
        attributes: What it says about itself.
        version: Of the format that it was written in.
    """

    name: str
    path: Path
    attributes: EpisodeAttributes
    version: int = FORMAT_VERSION

    @cached_property
    def entries(self) -> Mapping[str, ArrayEntry]:
        """Shape, type and checksum of each array by key.

        They are read when they are asked for: held for each of ten thousand episodes, they would
        cost most of the time that opening takes.

        Raises:
            ValueError: The metadata is damaged.
        """
        return entries_of(_read(self.path)[0], self.name)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays by key, mapped when they are asked for."""
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
        """Reads every array and its metadata, and returns one sentence for each that is not what was written."""
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
                    f"Episode {self.name}: {key} has checksum {got:08x}, {entry.crc32:08x} was "
                    f"written{frames}."
                )
            elif not intact:
                yield (
                    f"Episode {self.name}: the checksums of the rows of {key} are damaged "
                    f"({folder / ROWS_FILE})."
                )
        metadata = folder / "zarr.json"
        if not metadata.is_file() or metadata.read_bytes() != array_metadata(entry):
            yield f"Episode {self.name}: {key} has another zarr.json than was written ({metadata})."

    def require_whole(self) -> None:
        """Refuses an episode that is damaged, before anything is made from it that would have checksums of its own.

        Raises:
            ValueError: With what `damaged` says.
        """
        if found := self.damaged():
            raise ValueError(" ".join(found))


def _differing(written: bytes, got: bytes) -> str:
    """Names the first row whose checksum differs, where there is one for each."""
    if len(written) != len(got):
        return ""
    rows = np.flatnonzero(np.frombuffer(written, "<u4") != np.frombuffer(got, "<u4"))
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"; frame {rows[0]}{more}"


def episode_metadata(attributes: EpisodeAttributes, entries: Mapping[str, ArrayEntry]) -> bytes:
    """Returns the `zarr.json` of an episode.

    Raises:
        ValueError: The attributes are no plain JSON.
    """
    arrays = {key: entry._asdict() for key, entry in entries.items()}
    return sealed_group({EPISODE_KEY: FORMAT_VERSION, **attributes.to_dict(), "arrays": arrays})


def write_metadata(
    path: Path, attributes: EpisodeAttributes, entries: Mapping[str, ArrayEntry]
) -> None:
    """Writes the `zarr.json` files of an episode whose chunks are in place."""
    for key, entry in entries.items():
        (path / array_name(key)).mkdir(exist_ok=True)
        (path / array_name(key) / "zarr.json").write_bytes(array_metadata(entry))
    (path / "zarr.json").write_bytes(episode_metadata(attributes, entries))


def read_episode(path: Path) -> StoredEpisode:
    """Opens an episode by its metadata alone; no array is read.

    Raises:
        DamagedError: Its metadata is not what was written.
        ValueError: A newer version wrote it.
    """
    plain, version = _read(path)
    try:
        attributes = EpisodeAttributes.from_dict(plain)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"Episode {path.name} is damaged: {error}") from error
    if version < FIRST_SEALED:  # No checksum says that the rest is whole.
        entries_of(plain, path.name)
    return StoredEpisode(path.name, path, attributes, version)


def _read(path: Path) -> tuple[dict[str, Any], int]:
    where = f"Episode {path.name}"
    try:
        data = (path / "zarr.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError(f"{where} is damaged: its zarr.json is missing.") from error
    return read_group(data, where, EPISODE_KEY)


def entries_of(plain: Mapping[str, Any], name: str) -> dict[str, ArrayEntry]:
    """Returns shape, type and checksum of each array from the attributes of an episode.

    Raises:
        ValueError: Something is missing.
    """
    try:
        return {key: ArrayEntry.from_dict(entry) for key, entry in plain["arrays"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"Episode {name} is damaged: its zarr.json lacks something ({error!r})."
        ) from error
