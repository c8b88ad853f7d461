"""A connection to a server that answers every message with one, and what goes wrong with it in words."""

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
        timeout_s: How long to wait for the connection, and for each message.

    Raises:
        RemoteError: Nobody answers there.
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
                f"No policy server at {address}: {error or type(error).__name__}."
            ) from error

    def ask(self, message: object) -> dict[str, Any]:
        """Sends one message and returns the answer.

        Raises:
            RemoteError: The server does not answer, or not with a map.
        """
        try:
            self._socket.send(pack(message))
        except (WebSocketException, OSError) as error:
            raise RemoteError(f"{self._address} does not take a message: {error}.") from error
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """Returns the next message.

        Raises:
            RemoteError: None comes, or none that is a map.
        """
        try:
            data = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError as error:
            self.close()  # A late answer would be taken for that to the next question.
            raise RemoteError(
                f"{self._address} has not answered for {self._timeout_s} s."
            ) from error
        except (WebSocketException, OSError) as error:
            raise RemoteError(f"{self._address} ended the connection: {error}.") from error
        if isinstance(data, str):
            raise RemoteError(f"{self._address} failed: {data[-500:]}")
        try:
            answer = unpack(data)
        except ValueError as error:
            raise RemoteError(f"{self._address} answered what cannot be read. {error}") from error
        if not isinstance(answer, dict):
            raise RemoteError(
                f"{self._address} answered with {type(answer).__name__}; a map was expected."
            )
        return answer

    def close(self) -> None:
        """Ends it."""
        with suppress(WebSocketException, OSError):
            self._socket.close()
