"""The local sockets of an emulator program: one for the client that looks after it, and others beside it."""

import json
import logging
import os
import select
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from stringline.datasets.contract.contract import Array
from stringline.real_robot.ipc.array_messages import Header, receive, send

log = logging.getLogger(__name__)

_INPUT = 0


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

    Whoever starts the program may die before it has connected, and then nobody ever would. So if
    the program's input is a pipe, its end is taken for that of its owner; `Emulator` holds the
    other end. An input of any other kind, such as a terminal, says nothing.

    Args:
        listener: Where the client connects.
        obey: Does what a header says and returns the answer; what it refuses, by ValueError,
            KeyError or TypeError, the client is told.
        owner: Descriptor of the program's input.

    Attributes:
        left: Whether the client has come and gone, or its owner is gone before.
    """

    def __init__(
        self,
        listener: socket.socket,
        obey: Callable[[Header], tuple[Header, dict[str, Array]]],
        owner: int = _INPUT,
    ) -> None:
        self._listener = listener
        self._obey = obey
        self._client: socket.socket | None = None
        self._waiting = select.epoll()
        self._waiting.register(listener, select.EPOLLIN)
        if is_pipe(owner):
            self._waiting.register(owner, 0)  # Its end is told all the same.
        self.left = False

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return (self._client or self._waiting).fileno()

    def serve(self) -> None:
        """Takes the client, or answers it, or sees that nobody will come."""
        if self._client is not None:
            self._answer(self._client)
            return
        come = [descriptor for descriptor, _ in self._waiting.poll(0)]
        if self._listener.fileno() in come:
            self._client, _ = self._listener.accept()
        elif come:
            log.warning("Whoever started the emulator is gone without having connected to it.")
            self.left = True

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


def is_pipe(descriptor: int) -> bool:
    """Says whether an open descriptor is an end of a pipe; of none at all it says no."""
    with suppress(OSError):
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    return False


@contextmanager
def local_sockets(*names: str) -> Iterator[list[socket.socket]]:
    """Opens listening sockets in a folder of their own; both are gone afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stringline-")))
        opened = [
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in names
        ]
        for name, one in zip(names, opened, strict=True):
            one.bind(str(folder / name))
            one.listen()
        yield opened


def announce(
    ports: Mapping[str, str], control: socket.socket, images: socket.socket | None = None
) -> None:
    """Prints the line of JSON that tells whoever started the program where everything is."""
    told = {"ports": dict(ports), "socket": control.getsockname()}
    if images is not None:
        told["images"] = images.getsockname()
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
