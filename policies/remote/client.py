"""A policy on a server, for whoever acts: without torch, and with the same face as a policy at hand."""

from types import TracebackType
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.chunks.prefix import Commitment, cannot_commit
from stringline.policies.remote.connection import Connection
from stringline.policies.remote.protocol import PROTOCOL, RemoteError, field

STATE = ("time", "joints/", "T_base_gripper/", "instruction")


class RemotePolicy:
    """A policy behind `stringline-serve`.

    Args:
        address: Such as `ws://127.0.0.1:8765`.
        timeout_s: How long to wait for a connection, and for each answer.

    Attributes:
        contract: What it observes and how it acts.
        digest: What tells its checkpoint from every other one.

    Raises:
        RemoteError: Nobody answers there, or something else than a policy server of this version.
    """

    def __init__(self, address: str, *, timeout_s: float = 30.0) -> None:
        self.address = address
        self._timeout_s = timeout_s
        connection, hello = self.connect()
        connection.close()
        self.contract = Contract.from_dict(field(hello, "contract", dict))
        self.digest: str = field(hello, "digest", str)
        self._cameras = tuple(f"/{camera.name}" for camera in self.contract.cameras)

    def session(self, seed: int) -> "RemoteSession":
        """Begins an episode on a connection of its own, so that several can go on at once.

        Raises:
            RemoteError: The server does not begin it.
        """
        return RemoteSession(self, seed)

    def connect(self) -> tuple[Connection, dict[str, Any]]:
        """Returns a connection, and what the server says about itself.

        Raises:
            RemoteError: There is no policy server of this version.
        """
        connection = Connection(self.address, self._timeout_s)
        hello = connection.receive()
        if hello.get("protocol") != PROTOCOL:
            connection.close()
            raise RemoteError(
                f"{self.address} speaks {hello.get('protocol')!r}; this client speaks {PROTOCOL!r}."
            )
        return connection, hello

    def needed(self, observation: Observation) -> dict[str, Any]:
        """Returns what of an observation the policy looks at: state, what is asked for, and the cameras of its contract."""
        return {
            key: np.asarray(value)
            for key, value in observation.items()
            if key.startswith(STATE) or key.endswith(self._cameras)
        }


class RemoteSession:
    """One episode of a policy on a server.

    Args:
        policy: Whose.
        seed: Decides the policy's random numbers.

    Attributes:
        commits: Whether the server's session can keep to what is decided; servers that do not say
            so cannot.

    Raises:
        RemoteError: The server does not begin it, or serves another contract by now.
    """

    def __init__(self, policy: RemotePolicy, seed: int) -> None:
        self._policy = policy
        self._connection, hello = policy.connect()
        if (hello.get("digest"), Contract.from_dict(field(hello, "contract", dict))) != (
            policy.digest,
            policy.contract,
        ):
            self.close()
            raise RemoteError(
                f"{policy.address} serves another policy now than when this client came. Connect "
                f"again."
            )
        self.commits = self._ask({"type": "begin", "seed": int(seed)}).get("commits") is True

    def plan(self, observation: Observation, committed: Commitment | None = None) -> ActionChunk:
        """Answers one observation; see `stringline.policies.chunks.prefix.CommittingSession`.

        Raises:
            RemoteError: The server refuses it, does not answer, or answers another one.
            ValueError: Something is decided, and the server's session cannot keep to anything.
        """
        stamp = float(observation["time"])
        address = self._policy.address
        question = {"type": "plan", "stamp": stamp, "observation": self._policy.needed(observation)}
        if committed is not None:
            if not self.commits:
                raise cannot_commit(self)
            question["committed"] = {
                "time": committed.time,
                "action": committed.action,
                "weight": committed.weight,
            }
        answer = self._ask(question)
        if answer.get("stamp") != stamp:
            raise RemoteError(
                f"{address} answered the observation of {answer.get('stamp')} s; asked was "
                f"{stamp} s."
            )
        try:
            time = field(answer, "time", np.ndarray)
            action = field(answer, "action", np.ndarray)
            return ActionChunk(time.astype(np.float64), action.astype(np.float32))
        except ValueError as error:
            raise RemoteError(f"{address} answered with no chunk of actions. {error}") from error

    def close(self) -> None:
        """Ends the episode."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the episode."""
        self.close()

    def __del__(self) -> None:
        """Ends the episode; a runner drops a session when its episode is over."""
        if hasattr(self, "_connection"):
            self.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = self._connection.ask(message)
        if answer.get("type") == "error":
            raise RemoteError(f"{self._policy.address}: {answer.get('message')}")
        return answer
