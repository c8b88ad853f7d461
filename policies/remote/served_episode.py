"""The answers of a policy server to the requests of one client."""

import logging
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.policies.chunks.chunk import Policy, Session
from stringline.policies.chunks.prefix import ActionPrefix, accepts_prefix, plan_with_prefix
from stringline.policies.remote.arrays import unpack
from stringline.policies.remote.protocol import (
    DEFECT,
    MISTAKE,
    REQUEST_ENTRIES,
    REQUEST_LIST,
    field,
)

logger = logging.getLogger(__name__)


class ServedEpisode:
    """The episode of one client."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._session: Session | None = None

    def answer(self, request: bytes | None) -> dict[str, Any]:
        """Answers one request, None for text; errors become error messages."""
        try:
            return self._answer(request)
        except (ValueError, KeyError) as error:
            return _error(MISTAKE, str(error))
        except Exception as error:
            logger.exception("The policy failed:")
            return _error(DEFECT, f"The policy failed: {type(error).__name__}: {error}")

    def _answer(self, request: bytes | None) -> dict[str, Any]:
        """Answers one request; raises a ValueError if it is not valid now."""
        if request is None:
            raise ValueError("A message is text; allowed: msgpack bytes.")
        message = unpack(request, most_entries=REQUEST_ENTRIES, longest_list=REQUEST_LIST)
        kind = field(message, "type", str)
        if kind == "begin":
            self._session = self._policy.session(field(message, "seed", int))
            return {"type": "begun", "commits": accepts_prefix(self._session)}
        if kind == "plan":
            prefix = (
                None
                if message.get("committed") is None
                else _prefix(field(message, "committed", dict))
            )
            return self._plan(
                field(message, "observation", dict),
                field(message, "stamp", (int, float)),
                prefix,
            )
        raise unknown_name("message type", kind, ("begin", "plan"))

    def _plan(
        self, observation: dict[str, Any], stamp: float, prefix: ActionPrefix | None
    ) -> dict[str, Any]:
        if self._session is None:
            raise ValueError("There is no episode; send {'type': 'begin', 'seed': ...} first.")
        arrays = {str(key): np.asarray(value) for key, value in observation.items()}
        chunk = plan_with_prefix(self._session, arrays, prefix)
        return {"type": "chunk", "stamp": stamp, "time": chunk.time, "action": chunk.action}


def _prefix(message: dict[str, Any]) -> ActionPrefix:
    time, action, weight = (
        field(message, name, np.ndarray) for name in ("time", "action", "weight")
    )
    return ActionPrefix(
        time.astype(np.float64), action.astype(np.float32), weight.astype(np.float64)
    )


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "kind": kind, "message": message}
