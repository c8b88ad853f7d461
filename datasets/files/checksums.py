"""CRC-32 checksums of arrays and of their rows (zlib; near memory speed, no further package)."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The CRC-32 of each row lies beside an array of large rows, so that `verify` can name the frame.
# zarr ignores the file.
ROWS_FILE = "rows.crc32"
_LARGE_ROW = 256


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Returns the memory of a contiguous array as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def crc32(array: NDArray[Any], start: int = 0) -> int:
    """Returns the CRC-32 of a contiguous array, continued from the checksum `start`."""
    return zlib.crc32(as_bytes(array), start)


def crc32_of_rows(array: NDArray[Any]) -> bytes:
    """Returns the CRC-32 of each row, low byte first; nothing for rows below 256 bytes."""
    if array.ndim < 2 or not len(array) or array[0].nbytes < _LARGE_ROW:
        return b""
    return np.array([crc32(row) for row in array], "<u4").tobytes()
