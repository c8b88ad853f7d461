"""The loop of an emulator program: pseudo-terminals for drivers, a local socket for cameras, clock and faults."""

import contextlib
import os
import socket
import time
import tty
from collections.abc import Mapping
from pathlib import Path

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.emulators.dynamixel.aloha_arms import EmulatedArms
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.plants.plant import Plant
from stringline.real_robot.emulators.program.control import ControlSocket, serve_ready
from stringline.real_robot.emulators.program.image_feed import ImageFeed
from stringline.real_robot.emulators.program.operations import Operations

_READ_SIZE = 4096
_GOALS_TIMEOUT_S = 2.0
# A late emulator catches up with that much and forgets the rest, as a real world would have gone
# on.
_MAX_LAG_S = 0.25


class Terminal:
    """A pseudo-terminal whose far end is a line of servos.

    Args:
        line: Who listens.
        capture: File that keeps every byte a driver sends, or None.
    """

    def __init__(self, line: EmulatedLine, capture: Path | None = None) -> None:
        self.line = line
        self.master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self.master, False)
        self.name = os.ttyname(self._slave)
        self._capture = None if capture is None else capture.open("wb", buffering=0)

    def fileno(self) -> int:
        """Descriptor to wait on while it is open."""
        return self.master

    def serve(self) -> None:
        """Answers what has come in."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.master, _READ_SIZE)
            if self._capture is not None:
                self._capture.write(data)
            answer = self.line.receive(data)
            if answer:
                os.write(self.master, answer)

    @property
    def open(self) -> bool:
        """Whether there still is a port."""
        return self.master >= 0

    def close(self) -> None:
        """Pulls the cable."""
        if self.open:
            os.close(self.master)
            os.close(self._slave)
            self.master = -1
        if self._capture is not None:
            self._capture.close()
            self._capture = None


class EmulatorServer:
    """Serves one client and any driver until the client says goodbye.

    Args:
        plant: The world.
        arms: Its servos.
        listener: Socket where the client connects.
        real_time: Whether the world goes on by itself, or one period per `advance` message.
        capture: Folder for the bytes that drivers send, a file per arm, or None.
        feed: Hands on what the plant's cameras see; None: nobody looks, or somebody else does.
    """

    def __init__(
        self,
        plant: Plant,
        arms: EmulatedArms,
        listener: socket.socket,
        *,
        real_time: bool,
        capture: Path | None = None,
        feed: ImageFeed | None = None,
    ) -> None:
        self._plant = plant
        self._arms = arms
        self._real_time = real_time
        self._feed = feed
        self._terminals = {
            arm: Terminal(line, None if capture is None else capture / f"{arm}.bin")
            for arm, line in arms.lines.items()
        }
        operations = Operations(
            plant, begin=arms.begin, advance=self._advance_after, fault=self._fault
        )
        self._control = ControlSocket(listener, operations)

    @property
    def ports(self) -> dict[str, str]:
        """Names of the pseudo-terminals by arm."""
        return {arm: terminal.name for arm, terminal in self._terminals.items()}

    def run(self) -> None:
        """Serves until the client leaves, then closes everything."""
        due = time.monotonic()
        try:
            while not self._control.left:
                now = time.monotonic()
                if self._real_time and now >= due:
                    self._advance()
                    due = max(due + self._plant.period_s, now - _MAX_LAG_S)
                terminals = [terminal for terminal in self._terminals.values() if terminal.open]
                timeout_s = max(0.0, due - time.monotonic()) if self._real_time else None
                serve_ready([*terminals, self._control], timeout_s)
        finally:
            for terminal in self._terminals.values():
                terminal.close()
            self._plant.close()

    def _advance_after(self, wanted: Mapping[str, int]) -> None:
        """Goes on by one period once every line has got as many goals as the driver has sent."""
        deadline = time.monotonic() + _GOALS_TIMEOUT_S
        while (late := self._late(wanted)) and time.monotonic() < deadline:
            serve_ready([self._terminals[arm] for arm in late], 0.05)
        if late:
            raise ValueError(
                f"No new goal has reached {', '.join(late)} within {_GOALS_TIMEOUT_S} s."
            )
        self._advance()

    def _late(self, wanted: Mapping[str, int]) -> list[str]:
        return [
            arm
            for arm, terminal in self._terminals.items()
            if terminal.open and terminal.line.goal_writes < wanted.get(arm, 0)
        ]

    def _advance(self) -> None:
        self._arms.advance()
        if self._feed is not None:
            self._feed.look()

    def _fault(self, arm: str, kind: str, servo: int) -> None:
        if arm not in self._terminals:
            raise unknown_name("arm", arm, self._terminals)
        terminal = self._terminals[arm]
        terminal.line.fault(kind, servo)
        if terminal.line.dropped:
            terminal.close()
