"""Lines of serial ports as inputs: of an external stop, or of a pedal of hold-to-run."""

import fcntl
import os
import struct
import termios
import time
import tty
from collections.abc import Callable, Mapping
from ctypes import c_double
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.ipc.child_process import ChildProcess, leave_to_owner
from stringline.real_robot.ipc.heartbeat import input_memory

BYTES = "bytes"
LINES: Mapping[str, int] = {
    "cts": termios.TIOCM_CTS,
    "dsr": termios.TIOCM_DSR,
    "dcd": termios.TIOCM_CD,
    "ri": termios.TIOCM_RI,
}
_PERIOD_S = 0.01
_ALIVE = b"1"
_START_S = 10.0  # Longest wait for the process, which a busy machine starts in some seconds.
_FIRST_S = 2.0  # Longest wait for the first permission.
_END_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class LineSettings:
    """A line of a serial port that permits motion.

    Attributes:
        port: The serial port, which nothing else uses.
        signal: `cts`, `dsr`, `dcd` or `ri`: motion is permitted while this input is active, which a
            closed contact from DTR or RTS makes it. `bytes`: a device sends the character 1 at
            least 20 times a second while it permits motion.
    """

    port: str
    signal: str = "cts"

    def __post_init__(self) -> None:
        """Checks the signal."""
        if self.signal not in (*LINES, BYTES):
            raise unknown_name("signal of a serial line", self.signal, (*LINES, BYTES))

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads settings.

        Raises:
            ValueError: A setting is unknown, or the port is missing.
        """
        for name in plain:
            if name not in ("port", "signal"):
                raise unknown_name("setting of a serial line", str(name), ("port", "signal"))
        if not plain.get("port"):
            raise ValueError("A serial line needs its port, such as port: /dev/ttyUSB0.")
        return cls(**{name: str(value) for name, value in plain.items()})


class InputLine:
    """Watches a line in a process of its own, which ends with its owner; a context manager.

    Any error ends the permission: a port that is lost or cannot be read, a process that died.

    Attributes:
        permission: Memory of the time at which the line last permitted motion.
    """

    def __init__(self, settings: LineSettings) -> None:
        self.settings = settings
        self.permission: c_double = input_memory()
        self._child: ChildProcess[Connection] = ChildProcess(
            _watch,
            (settings, self.permission),
            Pipe(),
            name="stringline input line",
            end_timeout_s=_END_TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        self._child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def check_readable(self) -> None:
        """Waits until the line can be read.

        Raises:
            ValueError: It cannot.
        """
        line = f"The line {self.settings.signal} of {self.settings.port}"
        if not self._child.channel.poll(_START_S):
            raise ValueError(f"{line} was not read within {_START_S:g} s.")
        try:
            problem = self._child.channel.recv_bytes().decode()
        except EOFError:
            problem = "its process ended"
        if problem:
            raise ValueError(f"{line} cannot be read: {problem}.")

    def check_permits(self) -> None:
        """Waits until the line permits motion.

        Raises:
            ValueError: It does not.
        """
        deadline = time.monotonic() + _FIRST_S
        while self.permission.value == 0.0:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"The line {self.settings.signal} of {self.settings.port} does not permit "
                    "motion. Release the external stop, or check the wiring."
                )
            time.sleep(_PERIOD_S)


def _watch(settings: LineSettings, permission: c_double, channel: Connection) -> None:
    leave_to_owner()
    try:
        permits = _reader(settings)
        permits()
    except (OSError, termios.error) as error:
        channel.send_bytes(str(error).encode())
        return
    channel.send_bytes(b"")
    while not _ends(channel):
        if permits():
            permission.value = time.monotonic()


def _ends(channel: Connection) -> bool:
    """Waits for a period; returns whether the owner has closed the channel or has died."""
    try:
        return channel.poll(_PERIOD_S)
    except OSError:
        return True


def _reader(settings: LineSettings) -> Callable[[], bool]:
    """Opens a port to read it; returns a function that says whether the line permits motion.

    Raises:
        OSError: The port cannot be opened or has no such line.
    """
    # Linux sets DTR and RTS when a port is opened, and resets them when it is closed.
    port = os.open(settings.port, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    if settings.signal == BYTES:
        tty.setraw(port)
        return lambda: _reads_alive(port)
    line = LINES[settings.signal]
    return lambda: bool(_modem_lines(port) & line)


def _modem_lines(port: int) -> int:
    found: tuple[int] = struct.unpack("i", fcntl.ioctl(port, termios.TIOCMGET, bytes(4)))
    return found[0]


def _reads_alive(port: int) -> bool:
    """Returns whether only the right character was received since the last call."""
    try:
        data = os.read(port, 4096)
    except BlockingIOError:
        return False
    if not data:
        raise OSError("the port was closed")
    return set(data) == set(_ALIVE)
