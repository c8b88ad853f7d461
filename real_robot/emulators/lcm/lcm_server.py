"""The loop of the program: LCM to the drivers, by the clock or in lock-step, and a local socket for whoever looks after it."""

import socket
import time
from collections.abc import Mapping, Sequence

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.lcm.driver_program import Station
from stringline.real_robot.emulators.program.control import ControlSocket, Served, serve_ready
from stringline.real_robot.emulators.program.metronome import Metronome
from stringline.real_robot.emulators.program.operations import Operations
from stringline.real_robot.ipc.array_messages import Header

_COMMANDS_TIMEOUT_S = 2.0
_COAX_S = (
    0.001  # Between two periods while nobody counts time: programs need many of them to come up.
)


class LcmServer:
    """Serves one client and the drivers until the client says goodbye.

    Args:
        cell: The world with its controllers.
        stations: The programs that speak for the arms, each arm in one of them.
        listener: Socket where the client connects.
        real_time: Whether time goes on by itself. Else programs come up by themselves, and from the
            first episode on there is one period per `advance` message.
        phase: By which share of a period each controller is behind the one before it; they have no
            common clock.
    """

    def __init__(
        self,
        cell: EmulatedCell,
        stations: Sequence[Station],
        listener: socket.socket,
        *,
        real_time: bool,
        phase: float = 0.0,
    ) -> None:
        self._cell = cell
        self._stations = stations
        self._real_time = real_time
        self._phase = phase
        self._station_of = {arm: station for station in stations for arm in station.arms}
        operations = Operations(
            cell.plant,
            begin=self._begin,
            advance=self._advance_after,
            fault=self._fault,
            report=self._report,
            reboot=self._reboot,
        )
        self._control = ControlSocket(listener, operations)
        self._begun = False

    @property
    def _served(self) -> list[Served]:
        bench = self._cell.bench
        return [*self._stations, *([] if bench is None else [bench]), self._control]

    def run(self) -> None:
        """Serves until the client leaves, then closes everything."""
        period_s = self._cell.plant.period_s if self._real_time else _COAX_S
        beats = Metronome(list(self._cell.controllers), period_s, self._phase, time.monotonic())
        try:
            while not self._control.left:
                timed = self._real_time or not self._begun
                for arm in beats.take(time.monotonic()) if timed else ():
                    self._beat(arm)
                serve_ready(
                    self._served, max(0.0, beats.next - time.monotonic()) if timed else None
                )
        finally:
            for station in self._stations:
                station.close()
            if self._cell.bench is not None:
                self._cell.bench.close()
            self._cell.plant.close()

    def _beat(self, arm: str) -> None:
        """Goes on with one arm; the first one's beat is the world's.

        The program steps before the world does, which takes milliseconds: so it has taken commands
        and told its status before other work can come between the two. Of two commands between its
        steps it takes the second, and that would be a jump.
        """
        self._station_of[arm].tick((arm,), self._host_us(), counted=self._real_time)
        if arm == next(iter(self._cell.controllers)):
            if self._real_time:
                self._advance()
            elif self._cell.bench is not None:
                self._cell.bench.tick()

    def _host_us(self) -> int | None:
        """The time on the host; in lock-step it is that of the controllers."""
        return time.time_ns() // 1000 if self._real_time else None

    def _report(self, header: Header) -> Header:
        return {"report": {arm: station.report(arm) for arm, station in self._station_of.items()}}

    def _fault(self, arm: str, kind: str, count: int) -> None:
        if arm not in self._station_of:
            raise unknown_name("arm", arm, self._station_of)
        self._station_of[arm].fault(arm, kind, count)

    def _reboot(self, header: Header) -> Header:
        self._cell.reboot()
        self._begun = False
        for station in self._stations:
            station.reboot({arm: self._cell.controllers[arm] for arm in station.arms})
        return {}

    def _begin(self, seed: int, options: Mapping[str, float]) -> None:
        for station in self._stations:
            station.begin()
        told = self._cell.begin(seed, options)
        self._begun = True
        for place in range(max(map(len, told.values()))):
            for station in self._stations:
                for arm in station.arms:
                    for data in told[arm][place : place + 1]:
                        station.program.step(arm, data, self._host_us())
                station.publish()

    def _advance_after(self, wanted: Mapping[str, int]) -> None:
        """Goes on by one period once every program has got as many commands as its driver has sent."""
        deadline = time.monotonic() + _COMMANDS_TIMEOUT_S
        while (late := self._late(wanted)) and time.monotonic() < deadline:
            serve_ready([self._station_of[arm] for arm in late], 0.05)
        if late:
            raise ValueError(
                f"No new command has reached {', '.join(late)} within {_COMMANDS_TIMEOUT_S} s."
            )
        if self._cell.bench is not None:
            self._cell.bench.serve()
        self._advance()
        for station in self._stations:
            station.tick(station.arms, None, counted=False)

    def _late(self, wanted: Mapping[str, int]) -> list[str]:
        return [
            arm for arm, station in self._station_of.items() if station.heard < wanted.get(arm, 0)
        ]

    def _advance(self) -> None:
        self._cell.advance()
        if self._cell.bench is not None:
            self._cell.bench.tick()
