"""The front end of emulated servos: a pseudo-terminal per arm, on which drivers find its bus."""

import contextlib
import os
import socket
import time
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.real_robot.emulators.dynamixel.aloha_arms import EmulatedArms
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.plant import Plant
from stringline.real_robot.emulators.program.capture_file import ArrivalFile, CaptureFile
from stringline.real_robot.emulators.program.control import Served
from stringline.real_robot.emulators.program.emulator_server import EmulatorServer

_READ_SIZE = 4096
# A late emulator makes up for that much and skips the rest, as a real world would have gone on.
_MAX_LAG_S = 0.25


class Terminal:
    """A pseudo-terminal whose far end is a line of servos.

    Args:
        capture: File that records every byte of a driver, or None.
        real_time: Whether another file records when the bytes arrived.
    """

    def __init__(
        self, line: EmulatedLine, capture: Path | None = None, *, real_time: bool = False
    ) -> None:
        self.line = line
        self.master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self.master, False)
        self.name = os.ttyname(self._slave)
        self._capture = CaptureFile(capture)
        self._arrivals = ArrivalFile(capture if real_time else None)

    def fileno(self) -> int:
        """Descriptor to wait on while it is open."""
        return self.master

    def serve(self) -> None:
        """Answers the packets that have arrived."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.master, _READ_SIZE)
            # First, so that the time of captured bytes is always known.
            self._arrivals.note(len(data), time.monotonic())
            self._capture.write(data)
            answer = self.line.receive(data)
            if answer:
                os.write(self.master, answer)

    @property
    def open(self) -> bool:
        """Whether the port still exists."""
        return self.master >= 0

    def close(self) -> None:
        """Removes the port, as pulling the cable does."""
        if self.open:
            os.close(self.master)
            os.close(self._slave)
            self.master = -1
        self._capture.close()
        self._arrivals.close()


class ServoServer(EmulatorServer):
    """Serves one client and any driver of Dynamixel servos.

    Args:
        real_time: Whether the world advances by itself, or one period per `advance` message.
        capture: Folder for the bytes that drivers send, a file per arm, or None.
        images: Server for the images of a plant that draws them itself, or None.
    """

    WRITE: ClassVar[str] = "goal"

    def __init__(
        self,
        plant: Plant,
        arms: EmulatedArms,
        listener: socket.socket,
        *,
        real_time: bool,
        capture: Path | None = None,
        images: ImageServer | None = None,
    ) -> None:
        self._arms = arms
        self._real_time = real_time
        self._images = images
        self._shown: dict[str, Array] = {}
        self._due = time.monotonic()
        self._terminals = {
            arm: Terminal(
                line, None if capture is None else capture / f"{arm}.bin", real_time=real_time
            )
            for arm, line in arms.lines.items()
        }
        super().__init__(plant, listener)

    @property
    def ports(self) -> dict[str, str]:
        """Names of the pseudo-terminals by arm."""
        return {arm: terminal.name for arm, terminal in self._terminals.items()}

    @property
    def _endpoints(self) -> Sequence[Served]:
        return [terminal for terminal in self._terminals.values() if terminal.open]

    def _run_due(self) -> float | None:
        if not self._real_time:
            return None
        now = time.monotonic()
        if now >= self._due:
            self._step()
            self._due = max(self._due + self._plant.period_s, now - _MAX_LAG_S)
        return max(0.0, self._due - time.monotonic())

    def _writes(self) -> Mapping[str, tuple[Served, int]]:
        return {
            arm: (terminal, terminal.line.goal_writes)
            for arm, terminal in self._terminals.items()
            if terminal.open
        }

    def _step(self) -> None:
        self._arms.advance()
        if self._images is not None and (frames := self._plant.frames()) is not self._shown:
            self._shown = frames
            self._images.show(frames, time.monotonic())

    def _begin(self, seed: int, options: Mapping[str, Any]) -> None:
        self._arms.begin(seed, options)

    def _fault(self, arm: str, kind: str, number: int) -> None:
        if arm not in self._terminals:
            raise unknown_name("arm", arm, self._terminals)
        terminal = self._terminals[arm]
        terminal.line.fault(kind, number)
        if terminal.line.dropped:
            terminal.close()

    def _close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()
