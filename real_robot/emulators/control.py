"""The local sockets of an emulator program: one for the client that looks after it, and others beside it."""

import json
import logging
import select
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from stringline.datasets.contract import Array
from stringline.real_robot.emulators.messages import Header, Json, receive, send

log = logging.getLogger(__name__)


class Served(Protocol):
    """Something that others write to."""

    def fileno(self) -> int:
        """Descriptor to wait on."""
        ...

    def serve(self) -> None:
        """Takes what has come."""
        ...


def serve_ready(waiting: Sequence[Served], timeout_s: float | None) -> None:
    """Waits until something has come to one of them, or for that long (None: for ever), and serves in the order given."""
    for one in select.select(waiting, [], [], timeout_s)[0]:
        one.serve()


class ControlSocket:
    """Takes one client, and does what it asks for until it leaves.

    Args:
        listener: Where the client connects.
        obey: Does what a header says and returns the answer; what it refuses, by ValueError, KeyError or TypeError, the client
            is told.

    Attributes:
        left: Whether the client has come and gone.
    """

    def __init__(self, listener: socket.socket, obey: Callable[[Header], tuple[Header, dict[str, Array]]]) -> None:
        self._listener, self._obey = listener, obey
        self._client: socket.socket | None = None
        self.left = False

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return (self._client or self._listener).fileno()

    def serve(self) -> None:
        """Takes the client, or answers it."""
        if self._client is None:
            self._client, _ = self._listener.accept()
        else:
            self._answer(self._client)

    def _answer(self, client: socket.socket) -> None:
        try:
            header, _ = receive(client)
            try:
                send(client, *self._obey(header))
            except (ValueError, KeyError, TypeError) as error:
                send(client, {"error": str(error)})
        except (ConnectionError, ValueError) as error:
            log.debug("The client left: %s", error)
            client.close()
            self.left = True


def options_of(header: Header) -> dict[str, float]:
    """Returns the task options of a message that begins an episode."""
    options = header.get("options")
    return {key: float(str(value)) for key, value in options.items()} if isinstance(options, dict) else {}


def counts_of(header: Header) -> dict[str, int]:
    """Returns how many writes a message says that drivers have sent, by arm."""
    writes: Json = header["writes"]
    return {arm: int(str(count)) for arm, count in writes.items()} if isinstance(writes, dict) else {}


@contextmanager
def local_sockets(*names: str) -> Iterator[list[socket.socket]]:
    """Opens listening sockets in a folder of their own; both are gone afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stringline-")))
        opened = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in names]
        for name, one in zip(names, opened, strict=True):
            one.bind(str(folder / name))
            one.listen()
        yield opened


def announce(ports: Mapping[str, str], control: socket.socket, pictures: socket.socket | None = None) -> None:
    """Prints the line of JSON that tells whoever started the program where everything is."""
    told = {"ports": dict(ports), "socket": control.getsockname()}
    if pictures is not None:
        told["pictures"] = pictures.getsockname()
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
