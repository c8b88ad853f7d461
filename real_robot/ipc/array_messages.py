"""Messages between an emulator and whoever looks after it: a JSON header with arrays behind it, over a local socket.

Length of the header (4 bytes, little-endian), header, and the bytes of each array that the header
lists under `arrays`.
"""

import json
import math
import socket
from collections.abc import Mapping

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
    connection.sendall(
        b"".join(
            [
                len(text).to_bytes(_LENGTH, "little"),
                text,
                *(value.tobytes() for value in arrays.values()),
            ]
        )
    )


def receive(connection: socket.socket) -> tuple[Header, dict[str, Array]]:
    """Waits for one message.

    Raises:
        ConnectionError: The other side is gone.
        ValueError: What came is no message.
    """
    length = int.from_bytes(_exactly(connection, _LENGTH), "little")
    if length > _LARGEST_HEADER:
        raise ValueError(f"A message header of {length} bytes; allowed: {_LARGEST_HEADER}.")
    try:
        header: Header = json.loads(_exactly(connection, length))
    except RecursionError as error:
        raise ValueError("A message header of too many levels.") from error
    if not isinstance(header, dict):
        raise ValueError(f"A message header is a map; got {type(header).__name__}.")
    listed = header.pop("arrays", [])
    if not isinstance(listed, list):
        raise ValueError(f"{listed!r:.100} lists no arrays.")
    return header, dict(_array(connection, entry) for entry in listed)


def _array(connection: socket.socket, entry: Json) -> tuple[str, Array]:
    """Waits for an array and returns it with its key."""
    if not isinstance(entry, dict) or not isinstance(shape := entry.get("shape"), list):
        raise ValueError(f"{entry!r:.100} describes no array.")
    try:
        dtype = np.dtype(str(entry.get("dtype")))
        sizes = [int(str(size)) for size in shape]
    except (TypeError, SyntaxError) as error:
        raise ValueError(f"{entry!r:.100} describes no array.") from error
    count = dtype.itemsize * math.prod(sizes)
    if (
        dtype.hasobject
        or not dtype.itemsize
        or count > _LARGEST_ARRAY
        or not all(0 <= n <= _LARGEST_ARRAY for n in sizes)
    ):
        raise ValueError(f"An array {dtype} of shape {sizes!r:.100} is not accepted.")
    return str(entry.get("key")), np.frombuffer(_exactly(connection, count), dtype=dtype).reshape(
        sizes
    )


def options_in(header: Header) -> dict[str, float]:
    """Returns the options of a task that a header tells."""
    options = header.get("options")
    return (
        {key: float(str(value)) for key, value in options.items()}
        if isinstance(options, dict)
        else {}
    )


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("The connection was closed.")
        data += part
    return bytes(data)
