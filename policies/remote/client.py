"""Policies on a server, with the interface of local policies and without torch.

A `Connection` answers every message with one. openpi (Black et al., pi0, 2024; Physical
Intelligence's public code of 2025) has a protocol of its own: after the connection the server sends
a map of metadata; then each request is a map {"state": (14,), "images": {name: (3, H, W) uint8},
"prompt": text} and each answer one with "actions" (T, 14), all packed as in `protocol.py`. Errors
are sent as text.
"""

import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import (
    ConnectionClosed,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Camera, Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.conversions import gripper_convention
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix, prefix_error
from stringline.policies.remote.access import check_encrypted, token_for
from stringline.policies.remote.protocol import (
    LARGEST_ANSWER,
    PROTOCOL,
    RemoteError,
    RemoteUnavailableError,
    field,
    pack,
    unpack,
)

CAMERAS = {
    "cam_high": "overhead",
    "cam_low": "table",
    "cam_left_wrist": "wrist_left",
    "cam_right_wrist": "wrist_right",
}
GRIPPERS = [ALOHA.grippers[arm] for arm in ALOHA.arms]


class OpenpiPolicy:
    """An ALOHA policy behind an openpi server.

    Args:
        address: Such as `ws://127.0.0.1:8000`.
        prompt: The instruction.
        state_gripper: Convention of grippers in the state of the server's policy, a name of
            `GRIPPER_CONVENTIONS`; the protocol does not declare it. Models for gym-aloha use
            `opening`.
        action_gripper: The same for its actions.
        cameras: Our cameras by openpi's names; the server masks missing ones.
        image_size: Rows and columns of the sent images, which the server resizes.
        control_hz: Actions per second.
        timeout_s: Timeout of the connection and of each answer.
        api_key: Key of the server, sent as `Authorization: Api-Key KEY`; if None, not sent.

    Attributes:
        contract: The contract of ALOHA with the sent images.

    Raises:
        ValueError: A convention or camera does not exist, or the key would be sent unencrypted to
            another machine.
    """

    def __init__(
        self,
        address: str,
        *,
        prompt: str,
        state_gripper: str,
        action_gripper: str,
        cameras: Mapping[str, str] = CAMERAS,
        image_size: int = 224,
        control_hz: float = 50.0,
        timeout_s: float = 120.0,
        api_key: str | None = None,
    ) -> None:
        if api_key is not None:
            check_encrypted(address, "The key api_key")
        self.authorization = None if api_key is None else f"Api-Key {api_key}"
        for name in cameras:
            if name not in CAMERAS:
                raise unknown_name("openpi camera", name, CAMERAS)
        self.address = address
        self.prompt = prompt
        self.timeout_s = timeout_s
        self.cameras = dict(cameras)
        self.state_gripper = gripper_convention(state_gripper, "state_gripper")
        self.action_gripper = gripper_convention(action_gripper, "action_gripper")
        seen = [Camera(name, image_size, image_size, None) for name in self.cameras.values()]
        self.contract: Contract = ALOHA.contract(seen, control_hz)

    def session(self, seed: int) -> "OpenpiSession":
        """Opens a connection for one episode; the seed is unused: the protocol lacks seeds."""
        return OpenpiSession(self)

    def request(self, observation: Observation) -> dict[str, Any]:
        """Returns an observation as a request of the server."""
        state = np.array(observation["joints/position"], dtype=np.float32)
        state[GRIPPERS] = self.state_gripper.from_opening(state[GRIPPERS])
        images = {
            theirs: np.moveaxis(observation[f"rgb/{ours}"], -1, 0)
            for theirs, ours in self.cameras.items()
        }
        return {"state": state, "images": images, "prompt": self.prompt}

    def chunk(self, answer: Mapping[str, Any], now: float) -> ActionChunk:
        """Returns an answer as a chunk that starts at the time of the observation."""
        found = answer.get("actions")
        if (
            not isinstance(found, np.ndarray)
            or found.ndim != 2
            or found.shape[1] != len(ALOHA.joints)
            or not len(found)
        ):
            shape = found.shape if isinstance(found, np.ndarray) else type(found).__name__
            raise RemoteError(
                f"{self.address} answered with actions {shape}; expected: (T, {len(ALOHA.joints)})."
            )
        action: NDArray[np.float32] = found.astype(np.float32)
        action[:, GRIPPERS] = self.action_gripper.to_opening(action[:, GRIPPERS])
        return ActionChunk(now + np.arange(len(action)) / self.contract.control_hz, action)


class OpenpiSession:
    """One connection to an openpi server.

    Attributes:
        about: Metadata of the server.
    """

    def __init__(self, policy: OpenpiPolicy) -> None:
        self._policy = policy
        self._connection = Connection(policy.address, policy.timeout_s, policy.authorization)
        self.about = self._connection.receive()

    def plan(self, observation: Observation) -> ActionChunk:
        """Plans.

        Raises:
            RemoteError: The server fails, does not answer, or returns an invalid answer.
        """
        return self._policy.chunk(
            self._connection.request(self._policy.request(observation)), float(observation["time"])
        )

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


CLOSE_TIMEOUT_S = 2.0
# A server closes with these for a client that will fail again.
FINAL = (CloseCode.POLICY_VIOLATION, CloseCode.MESSAGE_TOO_BIG)


class Connection:
    """Sends and receives maps with arrays.

    It is closed when it is no longer used, and at the exit of the program, also after an error.

    Args:
        address: Such as `ws://127.0.0.1:8765`.
        timeout_s: Timeout of the connection and of each message.
        authorization: The header of that name, such as `Bearer TOKEN`; if None, not sent.

    Raises:
        RemoteError: The server refuses the connection.
        RemoteUnavailableError: The connection failed otherwise.
    """

    def __init__(self, address: str, timeout_s: float, authorization: str | None = None) -> None:
        self._address = address
        self._timeout_s = timeout_s
        try:
            self._socket = connect(
                address,
                compression=None,
                max_size=LARGEST_ANSWER,
                open_timeout=timeout_s,
                close_timeout=CLOSE_TIMEOUT_S,
                proxy=None,
                additional_headers={}
                if authorization is None
                else {"Authorization": authorization},
            )
        except InvalidStatus as error:
            reason = (error.response.body or b"").decode(errors="replace")[:500].strip()
            raise RemoteError(f"{address} refuses the connection: {reason or error}") from error
        except (InvalidURI, ValueError) as error:
            raise RemoteError(f"There is no policy server at {address}: {error}.") from error
        except (WebSocketException, OSError) as error:
            raise RemoteUnavailableError(
                f"There is no policy server at {address}: {error or type(error).__name__}."
            ) from error
        # Not __del__: at the exit it runs when the thread that reads the socket has stopped, for
        # which the closing handshake would wait without end. This runs before.
        self._end = weakref.finalize(self, _close, self._socket)

    def request(self, message: object) -> dict[str, Any]:
        """Sends one message and returns the answer."""
        try:
            self._socket.send(pack(message))
        except (WebSocketException, OSError) as error:
            raise self._ended("does not accept a message", error) from error
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """Returns the next message."""
        try:
            data = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError as error:
            self.close()  # A late answer would be read as that of the next message.
            raise RemoteUnavailableError(
                f"{self._address} did not answer within {self._timeout_s} s."
            ) from error
        except (WebSocketException, OSError) as error:
            raise self._ended("ended the connection", error) from error
        if isinstance(data, str):
            raise RemoteError(f"{self._address} failed: {data[-500:]}")
        try:
            answer = unpack(data)
        except ValueError as error:
            raise RemoteError(f"{self._address} sent an invalid message. {error}") from error
        if not isinstance(answer, dict):
            raise RemoteError(
                f"{self._address} answered with {type(answer).__name__}; expected: a map."
            )
        return answer

    def close(self) -> None:
        """Closes the connection."""
        self._end()

    def _ended(self, what: str, error: Exception) -> RemoteError:
        """Returns the error for a connection that has ended."""
        closed = error.rcvd if isinstance(error, ConnectionClosed) else None
        final = closed is not None and closed.code in FINAL
        kind = RemoteError if final else RemoteUnavailableError
        return kind(f"{self._address} {what}: {error}.")


def _close(socket: ClientConnection) -> None:
    with suppress(WebSocketException, OSError):
        socket.close()


STATE = ("time", "joints/", "T_base_gripper/", "instruction")


class RemotePolicy:
    """A policy behind `stringline-serve`.

    If the environment variable `STRINGLINE_TOKEN_FILE` names a file, its token is sent; see
    docs/remote.md.

    Args:
        address: Such as `ws://127.0.0.1:8765`, or `wss://` with TLS.
        timeout_s: Timeout of the connection and of each answer.

    Attributes:
        contract: Contract of its observations and actions.
        digest: Identifier of its checkpoint.
        training: Its tasks with their instructions, and further facts of the training, as in
            `checkpoint.yaml`; empty if the server does not send them.

    Raises:
        ValueError: The token file is invalid, or its token would be sent unencrypted.
        RemoteError: There is no policy server of this version.
    """

    def __init__(self, address: str, *, timeout_s: float = 30.0) -> None:
        self.address = address
        self._timeout_s = timeout_s
        connection, hello = self.connect()
        connection.close()
        self.contract = Contract.from_dict(field(hello, "contract", dict))
        self.digest: str = field(hello, "digest", str)
        training = hello.get("training")
        self.training: dict[str, Any] = training if isinstance(training, dict) else {}
        self._cameras = tuple(f"/{camera.name}" for camera in self.contract.cameras)

    def session(self, seed: int) -> "RemoteSession":
        """Starts an episode on a connection of its own, so several can run at once."""
        return RemoteSession(self, seed)

    def connect(self) -> tuple[Connection, dict[str, Any]]:
        """Returns a connection and the greeting of the server."""
        token = token_for(self.address)
        bearing = None if token is None else f"Bearer {token}"
        connection = Connection(self.address, self._timeout_s, bearing)
        hello = connection.receive()
        if hello.get("protocol") != PROTOCOL:
            connection.close()
            raise RemoteError(
                f"{self.address} has protocol {hello.get('protocol')!r}; this client needs "
                f"{PROTOCOL!r}."
            )
        return connection, hello

    def needed(self, observation: Observation) -> dict[str, Any]:
        """Returns the parts of an observation that the policy reads."""
        return {
            key: np.asarray(value)
            for key, value in observation.items()
            if key.startswith(STATE) or key.endswith(self._cameras)
        }


class RemoteSession:
    """One episode of a policy on a server.

    Attributes:
        accepts_prefix: Whether the server's session supports action prefixes; older servers do not.
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
                f"{policy.address} serves another policy than at the first connection. Connect "
                f"again."
            )
        self.accepts_prefix = (
            self._request({"type": "begin", "seed": int(seed)}).get("commits") is True
        )

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        """Plans; see `stringline.policies.chunks.chunk.PrefixSession`."""
        stamp = float(observation["time"])
        address = self._policy.address
        request = {"type": "plan", "stamp": stamp, "observation": self._policy.needed(observation)}
        if prefix is not None:
            if not self.accepts_prefix:
                raise prefix_error(self)
            request["committed"] = {
                "time": prefix.time,
                "action": prefix.action,
                "weight": prefix.weight,
            }
        answer = self._request(request)
        if answer.get("stamp") != stamp:
            raise RemoteError(
                f"{address} answered the observation of {answer.get('stamp')} s; expected: "
                f"{stamp} s."
            )
        try:
            time = field(answer, "time", np.ndarray)
            action = field(answer, "action", np.ndarray)
            return ActionChunk(time.astype(np.float64), action.astype(np.float32))
        except ValueError as error:
            raise RemoteError(f"{address} returned an invalid chunk of actions. {error}") from error

    def close(self) -> None:
        """Ends the episode."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _request(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = self._connection.request(message)
        if answer.get("type") == "error":
            raise RemoteError(f"{self._policy.address}: {answer.get('message')}")
        return answer
