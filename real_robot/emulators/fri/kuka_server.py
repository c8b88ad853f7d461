"""The part of the emulator's loop that KUKA arms over FRI and behind a driver program share."""

import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.program.control import Served
from stringline.real_robot.emulators.program.emulator_server import EmulatorServer
from stringline.real_robot.emulators.program.metronome import MOST_LAG_S, Metronome
from stringline.real_robot.ipc.array_messages import Header


class KukaConnection(Served, Protocol):
    """The connection of a controller, or of a driver program."""

    def close(self) -> None:
        """Closes the connection."""
        ...


class KukaServer(EmulatorServer):
    """Serves one client and the drivers of controllers until the client leaves.

    Args:
        real_time: Whether time advances by itself. In lock-step, sessions come up by themselves,
            and from the first episode on there is one period per `advance` message.
        phase: Share of a period by which each controller is behind the one before it; they have no
            common clock.
        waking_s: Seconds between two periods in lock-step while sessions come up.
        most_lag_s: Longest time by which it is late and makes up for that.
    """

    def __init__(
        self,
        cell: EmulatedCell,
        listener: socket.socket,
        *,
        real_time: bool,
        phase: float,
        waking_s: float,
        most_lag_s: float = MOST_LAG_S,
    ) -> None:
        super().__init__(cell.plant, listener)
        self._cell = cell
        self._real_time = real_time
        self._rigs = [] if cell.gripper_rig is None else [cell.gripper_rig]
        self._begun = False
        period_s = cell.plant.period_s if real_time else waking_s
        self._metronome = Metronome(
            list(cell.controllers), period_s, phase, time.monotonic(), most_lag_s
        )

    @property
    @abstractmethod
    def _connections(self) -> Sequence[KukaConnection]:
        """Connections of the controllers."""

    @abstractmethod
    def _cycle(self, arm: str) -> None:
        """Advances one arm by a period; the first one's cycle is the world's."""

    def _skip(self, arm: str, periods: int) -> None:
        """Takes note of periods of an arm that this process was too late for."""

    @abstractmethod
    def _restart(self) -> None:
        """Connects the controllers, which have just been switched on."""

    @property
    def _first(self) -> str:
        return next(iter(self._cell.controllers))

    @property
    def _timed(self) -> bool:
        """Whether periods begin by themselves: in real time, and while sessions come up."""
        return self._real_time or not self._begun

    @property
    def _endpoints(self) -> Sequence[Served]:
        return [*self._connections, *self._rigs]

    @property
    def _operations(self) -> Mapping[str, Callable[[Header], Header]]:
        return {"report": self._report, "reboot": self._reboot}

    @abstractmethod
    def _report(self, header: Header) -> Header:
        """Returns the statistics of the arms."""

    def _run_due(self) -> float | None:
        if not self._timed:
            return None
        for arm in self._metronome.take(time.monotonic()):
            skipped = self._metronome.skipped[arm]
            if self._real_time:  # In lock-step the clocks do not depend on that of the host.
                self._cell.controllers[arm].skip(skipped)
            self._skip(arm, skipped)
            self._cycle(arm)
        return max(0.0, self._metronome.next - time.monotonic())

    def _reboot(self, header: Header) -> Header:
        self._cell.reboot()
        self._begun = False
        self._restart()
        return {}

    def _advance_world(self) -> None:
        self._cell.advance()
        self._tick_grippers()

    def _serve_grippers(self) -> None:
        for rig in self._rigs:
            rig.serve()

    def _tick_grippers(self) -> None:
        for rig in self._rigs:
            rig.tick()

    def _gripper_report(self) -> Header:
        rig = self._cell.gripper_rig
        return {} if rig is None else dict(rig.report())

    def _close(self) -> None:
        for one in (*self._connections, *self._rigs):
            one.close()
