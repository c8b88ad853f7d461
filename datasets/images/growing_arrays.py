"""Arrays that grow on disk, and texts stored as arrays."""

from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.atomic import explained_full_disk, write_all
from stringline.datasets.files.checksums import as_bytes, crc32
from stringline.datasets.store.zarr_layout import (
    ArrayEntry,
    array_metadata,
    array_name,
    chunk_file,
    little_endian,
)


class GrowingArrays:
    """Arrays of one folder that grow along their first axis.

    A file is open during a write only: images of thousands of shapes need as many files.

    Attributes:
        entries: Shape, type and checksum of each array by key.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: dict[str, ArrayEntry] = {}
        self._folder = folder

    def extend(self, key: str, rows: Array) -> int:
        """Appends rows (N, ...) and returns the number of the first of them.

        The rows of a key have one shape and type.
        """
        rows = little_endian(rows)
        path = chunk_file(self._folder, key, rows.ndim)
        if key not in self.entries:
            path.parent.mkdir(parents=True)
            self.entries[key] = ArrayEntry((0, *rows.shape[1:]), rows.dtype.name, 0)
        known = self.entries[key]
        assert (known.shape[1:], known.dtype) == (rows.shape[1:], rows.dtype.name), key
        if rows.size:
            with explained_full_disk(self._folder, key), path.open("ab", buffering=0) as file:
                write_all(file.fileno(), as_bytes(rows))
        count = known.shape[0] + len(rows)
        checksum = crc32(rows, known.crc32)
        self.entries[key] = ArrayEntry((count, *rows.shape[1:]), rows.dtype.name, checksum)
        return known.shape[0]

    def finish(self) -> None:
        """Writes the metadata of the arrays."""
        for key, entry in self.entries.items():
            path = self._folder / array_name(key) / "zarr.json"
            path.write_bytes(array_metadata(entry))


class Texts:
    """Different texts, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Returns the number of a text, a new one for a new text; -1 for None."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def arrays(self) -> tuple[Array, Array]:
        """Returns all texts in UTF-8 (bytes,) uint8, and where each of them ends (T,) int64."""
        encoded = [text.encode() for text in self._numbers]
        ends = np.cumsum([len(data) for data in encoded], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), ends


class StoredTexts:
    """The texts of `Texts.arrays` by number."""

    def __init__(self, data: Array, ends: Array) -> None:
        self._data = data
        self._ends = ends

    def __getitem__(self, number: int) -> str:
        start = self._ends[number - 1] if number else 0
        return bytes(self._data[start : self._ends[number]]).decode()
