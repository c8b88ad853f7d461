"""Messages between an emulator and whoever looks after it: a JSON header with arrays behind it, over a local socket.

Length of the header (4 bytes, little-endian), header, and the bytes of each array that the header lists under `arrays`.
"""

import json
import math
import socket
from collections.abc import Mapping

import numpy as np

from stringline.datasets.contract import Array

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Header = dict[str, Json]

_LENGTH = 4
_LARGEST_HEADER = 1 << 20
_LARGEST_ARRAY = 1 << 28


def send(connection: socket.socket, header: Mapping[str, Json], arrays: Mapping[str, Array] | None = None) -> None:
    """Sends one message."""
    arrays = {key: np.asarray(value, order="C") for key, value in (arrays or {}).items()}
    listed: list[Json] = [{"key": key, "dtype": value.dtype.str, "shape": list(value.shape)} for key, value in arrays.items()]
    text = json.dumps({**header, "arrays": listed}).encode()
    connection.sendall(b"".join([len(text).to_bytes(_LENGTH, "little"), text, *(value.tobytes() for value in arrays.values())]))


def receive(connection: socket.socket) -> tuple[Header, dict[str, Array]]:
    """Waits for one message.

    Raises:
        ConnectionError: The other side is gone.
        ValueError: What came is no message.
    """
    length = int.from_bytes(_exactly(connection, _LENGTH), "little")
    if length > _LARGEST_HEADER:
        raise ValueError(f"A message header of {length} bytes; allowed: {_LARGEST_HEADER}.")
    header: Header = json.loads(_exactly(connection, length))
    arrays: dict[str, Array] = {}
    listed = header.pop("arrays")
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry["shape"], list):
            raise ValueError(f"{entry!r} describes no array.")
        dtype, shape = np.dtype(str(entry["dtype"])), tuple(int(str(size)) for size in entry["shape"])
        size = dtype.itemsize * math.prod(shape)
        if dtype.hasobject or not 0 <= size <= _LARGEST_ARRAY:
            raise ValueError(f"An array {dtype} of shape {shape} is not accepted.")
        arrays[str(entry["key"])] = np.frombuffer(_exactly(connection, size), dtype=dtype).reshape(shape)
    return header, arrays


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("The connection was closed.")
        data += part
    return bytes(data)
