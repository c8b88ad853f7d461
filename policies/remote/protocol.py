"""What a policy server and its clients say to each other: one msgpack message per WebSocket message, see `arrays.py`.

    server: {"protocol": "stringline/1", "contract": {...}, "digest": text}       after the connection is made
    client: {"type": "begin", "seed": number}                                     a new session
    server: {"type": "begun", "commits": true or false}
    client: {"type": "plan", "stamp": number, "observation": {key: array}}
    server: {"type": "chunk", "stamp": number, "time": (T,), "action": (T, A)}    times on the clock of the observation
    server: {"type": "error", "kind": "mistake" | "busy" | "defect", "message": text}

A connection is one episode at a time. The stamp is the observation's own time, and comes back as it
was sent: a server's clock never enters. After an error the connection goes on.

Where the session commits, a question may also say what the answer has to keep to, see
`commitment.py`:

    "committed": {"time": (K,), "action": (K, A), "weight": (K,)}

Servers that do not say whether a session commits are older; they would not look at it, so it is not
sent to them.
"""

from collections.abc import Mapping
from typing import Any

PROTOCOL = "stringline/1"
PORT = 8765
LARGEST_MESSAGE = 64 * 2**20  # Bytes: four cameras of 1280 x 720 with depth are 18 MB.
MISTAKE = "mistake"
BUSY = "busy"
DEFECT = "defect"


class RemoteError(RuntimeError):
    """A policy server could not answer; says why in its words."""


def field(message: object, name: str, kind: type | tuple[type, ...]) -> Any:
    """Returns a field of a message.

    Raises:
        ValueError: The message is no map, or lacks a field of that kind.
    """
    if not isinstance(message, Mapping):
        raise ValueError(f"A message is a map with a 'type'; got {type(message).__name__}.")
    value = message.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"A message needs {name!r}, {kinds}; got {type(value).__name__}.")
    return value
