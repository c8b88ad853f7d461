"""The protocol of policy servers: one msgpack message per WebSocket message, see `arrays.py`.

    server: {"protocol": "stringline/1", "contract": {...}, "digest": text,
             "training": {...}}                                                   after connecting
    client: {"type": "begin", "seed": number}                                     a new session
    server: {"type": "begun", "commits": true or false}
    client: {"type": "plan", "stamp": number, "observation": {key: array}}
    server: {"type": "chunk", "stamp": number, "time": (T,), "action": (T, A)}
    server: {"type": "error", "kind": "mistake" | "defect", "message": text}

A connection has one episode at a time. The stamp is the time of the observation and is returned
unchanged; the times of a chunk are on the clock of the observation, never the server's. After an
error the connection continues. A client waits for each answer before its next message. A server
ends the connection of a client that does not (code 1008), of one whose message exceeds the largest
observation of the contract by more than 1 MiB (1009), and of one too many (1013).

If the session supports action prefixes (`commits`), a request may contain one, see
`chunks/prefix.py`:

    "committed": {"time": (K,), "action": (K, A), "weight": (K,)}

`training` has the known entries `tasks` (instruction by task), `instructions`, `robot_models`,
`worlds` and `execution` of the checkpoint's record; older servers do not send it.

Servers without the field `commits` are older and would ignore a prefix, so none is sent to them.
"""

from collections.abc import Mapping
from typing import Any

from stringline.datasets.contract.contract import Contract
from stringline.datasets.contract.validation import observation_bytes

PROTOCOL = "stringline/1"
PORT = 8765
LARGEST_ANSWER = 64 * 2**20  # Bytes; a plan has some kB, the instructions of a training some MB.
# Bytes of a request besides its observation: names, shapes, the instruction and an action prefix.
REQUEST_EXTRAS = 2**20
# A request for 20 cameras has 1500 entries. Its lists are the shapes of arrays.
REQUEST_ENTRIES = 8192
REQUEST_LIST = 64
MISTAKE = "mistake"
DEFECT = "defect"


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
