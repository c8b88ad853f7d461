"""The protocol of policy servers: one msgpack message per WebSocket message, with NumPy arrays.

    server: {"protocol": "stringline/1", "contract": {...}, "digest": text,
             "training": {...}}                                                   after connecting
    client: {"type": "begin", "seed": number}                                     a new session
    server: {"type": "begun", "commits": true or false}
    client: {"type": "plan", "stamp": number, "observation": {key: array}}
    server: {"type": "chunk", "stamp": number, "time": (T,), "action": (T, A)}
    server: {"type": "error", "kind": "client_error" | "server_error", "message": text}

A connection has one episode at a time. The stamp is the time of the observation and is returned
unchanged; the times of a chunk are on the clock of the observation, never the server's. After an
error the connection continues. A client waits for each answer before its next message. A server
ends the connection of a client that does not (code 1008), of one whose message exceeds the largest
observation of the contract by more than 1 MiB (1009), and of one too many (1013).

If the session supports action prefixes (`commits`), a request may contain one, see
`ActionPrefix`:

    "committed": {"time": (K,), "action": (K, A), "weight": (K,)}

openpi's client sends an observation alone, a map with `time` and without `type`, and gets
{"actions": (T, A), "time": (T,)}, or text after an error. An episode, with the seed 0, begins with
the connection and with each observation that is not later than the last one.

`training` has the known entries `tasks` (instruction by task), `instructions`, `robot_models`,
`worlds` and `execution` of the checkpoint's record; older servers do not send it.

Servers without the field `commits` are older and would ignore a prefix, so none is sent to them.

Arrays have the layout of openpi's servers and clients. An array is the map {b"__ndarray__": true,
b"data": its bytes in C order, b"dtype": such as "<f4", b"shape": list}, a scalar
{b"__npgeneric__": true, b"data": number, b"dtype": str}. Unlike pickle, unpacking never executes
code.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgpack
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, observation_bytes

PROTOCOL = "stringline/1"
PORT = 8765
LARGEST_ANSWER = 64 * 2**20  # Bytes; a plan has some kB, the instructions of a training some MB.
# Bytes of a request besides its observation: names, shapes, the instruction and an action prefix.
REQUEST_EXTRAS = 2**20
# A request for 20 cameras has 1500 entries. Its lists are the shapes of arrays.
REQUEST_ENTRIES = 8192
REQUEST_LIST = 64
CLIENT_ERROR = "client_error"
SERVER_ERROR = "server_error"


class RemoteError(RuntimeError):
    """A policy server could not answer; the message is the server's."""


class RemoteUnavailableError(RemoteError):
    """A policy server cannot be reached or does not answer, perhaps for a moment only."""


def largest_request(contract: Contract) -> int:
    """Returns the bytes of the largest request for a policy with this contract."""
    return observation_bytes(contract) + REQUEST_EXTRAS


def field(message: object, name: str, kind: type | tuple[type, ...]) -> Any:
    """Returns a field of a message; a ValueError states a missing field or one of another kind."""
    if not isinstance(message, Mapping):
        raise ValueError(f"A message is a map with a 'type'; got {type(message).__name__}.")
    value = message.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"A message needs {name!r}, {kinds}; got {type(value).__name__}.")
    return value


KINDS = "biuf"  # Booleans, integers, floats: no objects, no structures.
# Entries of all lists and maps of a message; an object needs up to 64 times the memory of its byte.
MOST_ENTRIES = 2**17

Container = TypeVar("Container", list[Any], dict[Any, Any])


def pack(value: object) -> bytes:
    """Returns the bytes of nested maps, lists, text, numbers and arrays."""
    try:
        packed: bytes = msgpack.packb(value, default=_plain)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"The message cannot be packed: {error}.") from error
    return packed


def unpack(
    data: bytes, *, most_entries: int = MOST_ENTRIES, longest_list: int = MOST_ENTRIES
) -> Any:
    """Returns the argument of `pack`; arrays are read-only views of the bytes.

    Args:
        data: The bytes.
        most_entries: Largest number of entries of all lists and maps together.
        longest_list: Largest length of a list; memory for it is reserved before it is read.

    Raises:
        ValueError: The bytes are invalid, or exceed a limit; sizes of arrays are checked before
            they are created.
    """
    counter = _Counter(most_entries)
    try:
        return msgpack.unpackb(
            data,
            object_hook=lambda found: _array(counter.count(found)),
            list_hook=counter.count,
            strict_map_key=False,
            max_array_len=min(longest_list, most_entries),
            max_map_len=most_entries,
        )
    except (
        msgpack.UnpackException,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        SyntaxError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"A message of {len(data)} bytes cannot be unpacked: {error or type(error).__name__}."
        ) from error


class _Counter:
    """Counts the entries of a message while it is unpacked."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def count(self, found: Container) -> Container:
        """Adds a list or map with its entries, and returns it."""
        self._count += 1 + len(found)
        if self._count > self._most:
            raise ValueError(f"it has more than {self._most} entries")
        return found


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        _check_kind(value.dtype)
        return {
            b"__ndarray__": True,
            b"data": value.tobytes(),
            b"dtype": value.dtype.str,
            b"shape": value.shape,
        }
    if isinstance(value, np.generic):
        _check_kind(value.dtype)
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(
        f"an object of {type(value).__name__}; allowed: maps, lists, text, numbers and arrays"
    )


def _array(found: dict[Any, Any]) -> Any:
    if b"__ndarray__" in found:
        return _made(found[b"data"], _dtype(found[b"dtype"]), found[b"shape"])
    if b"__npgeneric__" in found:
        return _dtype(found[b"dtype"]).type(found[b"data"])
    return found


def _made(data: object, dtype: np.dtype[Any], shape: object) -> NDArray[Any]:
    if (
        not isinstance(data, bytes)
        or not isinstance(shape, list)
        or not all(type(n) is int and n >= 0 for n in shape)
    ):
        raise ValueError("an array needs bytes and a shape of whole numbers")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(
            f"an array {tuple(shape)} of {dtype} has {math.prod(shape) * dtype.itemsize} bytes; "
            f"got {len(data)}"
        )
    return np.frombuffer(data, dtype).reshape(shape)


def _dtype(name: object) -> np.dtype[Any]:
    if not isinstance(name, str):
        raise TypeError(f"a dtype is text; got {type(name).__name__}")
    dtype = np.dtype(name)
    _check_kind(dtype)
    return dtype


def _check_kind(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in KINDS:
        raise ValueError(
            f"an array of {dtype} is not allowed; allowed: booleans, integers and floats"
        )
