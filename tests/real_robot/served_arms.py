"""Emulated arms in a thread of the test, where servos can be set as no driver could."""

import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GripperServo
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver, AlohaLeaders
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX, Servo
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.dynamixel.servo_server import EmulatedArms, Terminal
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant

_PERIOD_S = 0.05
_READS = (Instruction.PING, Instruction.READ, Instruction.SYNC_READ)


class Served:
    """Both lines in a thread.

    Args:
        moves: Whether the world advances by 0.05 s with each packet that is no read, so that a
            wrong goal shows.

    Attributes:
        before: Receives the line and each packet before it is executed.
        farthest: Largest distance of each joint (14,) from its home since `watch`.
    """

    def __init__(
        self,
        servos: Sequence[Servo] = VIPERX,
        gripper: GripperServo = FOLLOWER,
        *,
        moves: bool = False,
    ) -> None:
        self.plant = FirstOrderPlant(ALOHA, period_s=_PERIOD_S)
        self.arms = EmulatedArms(self.plant, gripper, servos)
        self.lines = self.arms.lines
        self.before: Callable[[EmulatedLine, Packet], None] = lambda line, packet: None
        self._moves = moves
        self._servos = tuple(servos)
        self._gripper = gripper
        self.watch()
        for line in self.lines.values():
            self._attend(line)
        self._terminals = {arm: Terminal(line) for arm, line in self.lines.items()}
        self.ports = {arm: terminal.name for arm, terminal in self._terminals.items()}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _attend(self, line: EmulatedLine) -> None:
        execute = line._execute

        def attended(packet: Packet) -> bytes:
            self.before(line, packet)
            answer = execute(packet)
            if self._moves and packet.instruction not in _READS:
                self.advance()
            return answer

        line._execute = attended  # type: ignore[method-assign]

    def advance(self) -> None:
        """Lets the world go on, whose watchdogs then count no silence."""
        self.arms.advance()
        self.farthest = np.maximum(self.farthest, np.abs(self.positions() - self._start))
        for line in self.lines.values():
            for servo in line.servos.values():
                servo.feed_watchdog()

    def watch(self) -> None:
        """Measures motion from here on."""
        self._start = self.positions()
        self.farthest: NDArray[np.float64] = np.zeros(len(self._start))

    def place(self, positions: NDArray[np.float64]) -> None:
        """Puts the joints (14,) elsewhere, as a hand or a fall does, and measures motion anew."""
        self.plant._position = positions.copy()
        self.arms.sense()
        self.watch()

    def positions(self) -> NDArray[np.float64]:
        """Returns where the joints (14,) are."""
        return np.asarray(self.plant.measure()[0], dtype=np.float64).copy()

    def _serve(self) -> None:
        while not self._done.is_set():
            for terminal in select.select(list(self._terminals.values()), [], [], 0.02)[0]:
                terminal.serve()

    def driver(
        self, bus_watchdog_s: float = 0.0, answer_timeout_s: float = 0.2, **more: Any
    ) -> AlohaDriver:
        """Returns a driver of these arms as followers."""
        return AlohaDriver(
            self.ports, bus_watchdog_s=bus_watchdog_s, answer_timeout_s=answer_timeout_s, **more
        )

    def leaders(self, answer_timeout_s: float = 0.2) -> AlohaLeaders:
        """Returns a reader of these arms as leaders."""
        return AlohaLeaders(self.ports, gripper=self._gripper, answer_timeout_s=answer_timeout_s)

    def values(self, register: table.Register) -> set[int]:
        """Returns what the register holds in those servos that are no shadows."""
        masters = [servo.ident for servo in self._servos if servo.master is None]
        return {
            line.servos[ident].get(register) for line in self.lines.values() for ident in masters
        }

    def close(self) -> None:
        """Ends the thread."""
        self._done.set()
        self._thread.join()
        for terminal in self._terminals.values():
            terminal.close()
