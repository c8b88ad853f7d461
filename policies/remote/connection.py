"""A connection to a server that answers every message with one."""

from contextlib import suppress
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from stringline.policies.remote.arrays import pack, unpack
from stringline.policies.remote.protocol import LARGEST_MESSAGE, RemoteError


class Connection:
    """Sends and receives maps with arrays.

    Args:
        address: Such as `ws://127.0.0.1:8765`.
        timeout_s: Timeout of the connection and of each message.

    Raises:
        RemoteError: The connection failed.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        try:
            self._socket = connect(
                address,
                compression=None,
                max_size=LARGEST_MESSAGE,
                open_timeout=timeout_s,
                proxy=None,
            )
        except (WebSocketException, OSError, ValueError) as error:
            raise RemoteError(
                f"There is no policy server at {address}: {error or type(error).__name__}."
            ) from error

    def request(self, message: object) -> dict[str, Any]:
        """Sends one message and returns the answer."""
        try:
            self._socket.send(pack(message))
        except (WebSocketException, OSError) as error:
            raise RemoteError(f"{self._address} does not accept a message: {error}.") from error
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """Returns the next message."""
        try:
            data = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError as error:
            self.close()  # A late answer would be read as that of the next message.
            raise RemoteError(
                f"{self._address} did not answer within {self._timeout_s} s."
            ) from error
        except (WebSocketException, OSError) as error:
            raise RemoteError(f"{self._address} ended the connection: {error}.") from error
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
