"""The sockets of an emulator: one for the client that controls it, and others."""

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
    """A connection from which others are read."""

    def fileno(self) -> int:
        """Descriptor to wait on."""
        ...

    def serve(self) -> None:
        """Handles the data that have arrived."""
        ...


def serve_ready(waiting: Sequence[Served], timeout_s: float | None) -> None:
    """Waits for data, at most that long (None: for ever), and serves in the order given."""
    for one in select.select(waiting, [], [], timeout_s)[0]:
        one.serve()


class ControlSocket:
    """Accepts one client, and answers its requests until it disconnects.

    The process that started the program may end before it has connected. So if the program's input
    is a pipe, its end means the end of that process; `Emulator` holds the other end. Inputs of
    other kinds, such as a terminal, are ignored.

    Args:
        answer: Executes the request of a header and returns the answer; the client receives the
            message of its ValueError, KeyError or TypeError.

    Attributes:
        left: Whether the client has disconnected, or its process has ended before.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Header], tuple[Header, dict[str, Array]]],
        owner: int = _INPUT,
    ) -> None:
        self._listener = listener
        self._answer_to = answer
        self._client: socket.socket | None = None
        self._waiting = select.epoll()
        self._waiting.register(listener, select.EPOLLIN)
        if is_pipe(owner):
            self._waiting.register(owner, 0)  # Its end is reported all the same.
        self.left = False

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return (self._client or self._waiting).fileno()

    def serve(self) -> None:
        """Accepts the client, or answers it, or notices the end of its process."""
        if self._client is not None:
            self._answer(self._client)
            return
        come = [descriptor for descriptor, _ in self._waiting.poll(0)]
        if self._listener.fileno() in come:
            self._client, _ = self._listener.accept()
        elif come:
            log.warning("The process that started the emulator has ended without connecting to it.")
            self.left = True

    def _answer(self, client: socket.socket) -> None:
        try:
            header, _ = receive(client)
            try:
                send(client, *self._answer_to(header))
            except (ValueError, KeyError, TypeError) as error:
                send(client, {"error": str(error)})
        except (ConnectionError, ValueError) as error:
            log.debug("The client left: %s", error)
            client.close()
            self.left = True


def is_pipe(descriptor: int) -> bool:
    """Returns whether a descriptor is the end of a pipe; False if it is not open."""
    with suppress(OSError):
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    return False


def free_udp_ports(count: int) -> list[int]:
    """Returns different ports of the loopback interface, which other programs may still open."""
    with ExitStack() as stack:
        # All are open at once, so that they differ.
        taken = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


@contextmanager
def local_sockets(*names: str) -> Iterator[list[socket.socket]]:
    """Opens listening sockets in a temporary folder; both are removed afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stringline-")))
        opened = [
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in names
        ]
        for name, one in zip(names, opened, strict=True):
            one.bind(str(folder / name))
            one.listen()
        yield opened


def announce(ports: Mapping[str, str], control: socket.socket, images: socket.socket) -> None:
    """Prints the addresses of ports and sockets as one line of JSON."""
    addresses = {
        "ports": dict(ports),
        "socket": control.getsockname(),
        "images": images.getsockname(),
    }
    sys.stdout.write(json.dumps(addresses) + "\n")
    sys.stdout.flush()
