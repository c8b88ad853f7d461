"""A connection to a server that answers every message with one."""

from contextlib import suppress
from typing import Any

from websockets.exceptions import (
    ConnectionClosed,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.frames import CloseCode
from websockets.sync.client import connect

from stringline.policies.remote.arrays import pack, unpack
from stringline.policies.remote.protocol import (
    LARGEST_ANSWER,
    RemoteError,
    RemoteUnavailableError,
)

# A server closes with these for a client that will fail again.
FINAL = (CloseCode.POLICY_VIOLATION, CloseCode.MESSAGE_TOO_BIG)


class Connection:
    """Sends and receives maps with arrays.

    Args:
        address: Such as `ws://127.0.0.1:8765`.
        timeout_s: Timeout of the connection and of each message.
        token: Sent as `Authorization: Bearer TOKEN`; None: not sent.

    Raises:
        RemoteError: The server refuses the connection.
        RemoteUnavailableError: The connection failed otherwise.
    """

    def __init__(self, address: str, timeout_s: float, token: str | None = None) -> None:
        self._address = address
        self._timeout_s = timeout_s
        try:
            self._socket = connect(
                address,
                compression=None,
                max_size=LARGEST_ANSWER,
                open_timeout=timeout_s,
                proxy=None,
                additional_headers={} if token is None else {"Authorization": f"Bearer {token}"},
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
        with suppress(WebSocketException, OSError):
            self._socket.close()

    def _ended(self, what: str, error: Exception) -> RemoteError:
        """Returns the error for a connection that has ended."""
        closed = error.rcvd if isinstance(error, ConnectionClosed) else None
        final = closed is not None and closed.code in FINAL
        kind = RemoteError if final else RemoteUnavailableError
        return kind(f"{self._address} {what}: {error}.")
