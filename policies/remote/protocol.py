"""The protocol of policy servers: one msgpack message per WebSocket message, see `arrays.py`.

    server: {"protocol": "stringline/1", "contract": {...}, "digest": text,
             "training": {...}}                                                   after connecting
    client: {"type": "begin", "seed": number}                                     a new session
    server: {"type": "begun", "commits": true or false}
    client: {"type": "plan", "stamp": number, "observation": {key: array}}
    server: {"type": "chunk", "stamp": number, "time": (T,), "action": (T, A)}
    server: {"type": "error", "kind": "mistake" | "busy" | "defect", "message": text}

A connection has one episode at a time. The stamp is the time of the observation and is returned
unchanged; the times of a chunk are on the clock of the observation, never the server's. After an
error the connection continues.

If the session supports action prefixes (`commits`), a request may contain one, see
`chunks/prefix.py`:

    "committed": {"time": (K,), "action": (K, A), "weight": (K,)}

`training` has the known entries `tasks` (instruction by task), `instructions`, `robot_models`,
`worlds` and `execution` of the checkpoint's record; older servers do not send it.

Servers without the field `commits` are older and would ignore a prefix, so none is sent to them.
"""

from collections.abc import Mapping
from typing import Any

PROTOCOL = "stringline/1"
PORT = 8765
LARGEST_MESSAGE = 64 * 2**20  # Bytes; four cameras of 1280 x 720 with depth need 18 MB.
MISTAKE = "mistake"
BUSY = "busy"
DEFECT = "defect"


class RemoteError(RuntimeError):
    """A policy server could not answer; the message is the server's."""


def field(message: object, name: str, kind: type | tuple[type, ...]) -> Any:
    """Returns a field of a message; a ValueError states a missing field or one of another kind."""
    if not isinstance(message, Mapping):
        raise ValueError(f"A message is a map with a 'type'; got {type(message).__name__}.")
    value = message.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"A message needs {name!r}, {kinds}; got {type(value).__name__}.")
    return value
