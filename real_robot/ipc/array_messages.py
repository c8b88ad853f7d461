"""Messages over a local socket: a JSON header and arrays.

A message is the length of the header (4 bytes, little-endian), the header, and the bytes of each
array that the header lists under `arrays`.
"""

import json
import math
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Header = dict[str, Json]

_LENGTH = 4
_LARGEST_HEADER = 1 << 20
_LARGEST_ARRAY = 1 << 28


def send(
    connection: socket.socket, header: Mapping[str, Json], arrays: Mapping[str, Array] | None = None
) -> None:
    """Sends one message."""
    arrays = {key: np.asarray(value, order="C") for key, value in (arrays or {}).items()}
    listed: list[Json] = [
        {"key": key, "dtype": value.dtype.str, "shape": list(value.shape)}
        for key, value in arrays.items()
    ]
    text = json.dumps({**header, "arrays": listed}).encode()
    parts = [value.tobytes() for value in arrays.values()]
    connection.sendall(b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts]))


def receive(connection: socket.socket) -> tuple[Header, dict[str, Array]]:
    """Waits for one message.

    Raises:
        ConnectionError: The other side has closed the connection.
        ValueError: The bytes are not a message.
    """
    length = int.from_bytes(_exactly(connection, _LENGTH), "little")
    if length > _LARGEST_HEADER:
        raise ValueError(f"A message header has {length} bytes; allowed: {_LARGEST_HEADER}.")
    try:
        header: Header = json.loads(_exactly(connection, length))
    except RecursionError as error:
        raise ValueError("A message header has too many levels.") from error
    if not isinstance(header, dict):
        raise ValueError(f"A message header must be a map; got {type(header).__name__}.")
    listed = header.pop("arrays", [])
    if not isinstance(listed, list):
        raise ValueError(f"{listed!r:.100} is not a list of arrays.")
    return header, dict(_array(connection, entry) for entry in listed)


def _array(connection: socket.socket, entry: Json) -> tuple[str, Array]:
    """Receives an array and returns it with its key."""
    if not isinstance(entry, dict) or not isinstance(shape := entry.get("shape"), list):
        raise ValueError(f"{entry!r:.100} does not describe an array.")
    try:
        dtype = np.dtype(str(entry.get("dtype")))
        sizes = [int(str(size)) for size in shape]
    except (TypeError, SyntaxError) as error:
        raise ValueError(f"{entry!r:.100} does not describe an array.") from error
    count = dtype.itemsize * math.prod(sizes)
    bounded = count <= _LARGEST_ARRAY and all(0 <= size <= _LARGEST_ARRAY for size in sizes)
    if dtype.hasobject or not dtype.itemsize or not bounded:
        raise ValueError(f"An array {dtype} of shape {sizes!r:.100} is not accepted.")
    data = np.frombuffer(_exactly(connection, count), dtype=dtype)
    return str(entry.get("key")), data.reshape(sizes)


def options_in(header: Header) -> dict[str, Any]:
    """Returns the task options in a header."""
    options = header.get("options")
    plain = options if isinstance(options, dict) else {}
    return {
        key: float(value) if isinstance(value, int | float) else value
        for key, value in plain.items()
    }


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("The connection was closed.")
        data += part
    return bytes(data)
