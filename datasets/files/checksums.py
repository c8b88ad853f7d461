"""Checksums that find a flipped byte: CRC-32 (zlib), which runs near memory speed and needs no further package."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Beside an array of large rows lies a file with the CRC-32 of each, so that `verify` can name the
# frame. zarr passes over it.
ROWS_FILE = "rows.crc32"
_LARGE_ROW = 256


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Returns the memory of a contiguous array as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def crc32(array: NDArray[Any], start: int = 0) -> int:
    """Returns the CRC-32 of a contiguous array, continuing from the checksum of what came before it."""
    return zlib.crc32(as_bytes(array), start)


def crc32_of_rows(array: NDArray[Any]) -> bytes:
    """Returns the CRC-32 of each row, low byte first, or nothing where rows are so small that it would not pay."""
    if array.ndim < 2 or not len(array) or array[0].nbytes < _LARGE_ROW:
        return b""
    return np.array([crc32(row) for row in array], "<u4").tobytes()
