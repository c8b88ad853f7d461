"""The loop of the program: UDP to the drivers, by the clock or in lock-step, and a local socket for whoever looks after it."""

import contextlib
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.monitoring import LONGEST_MESSAGE
from stringline.real_robot.emulators.fri.captured_datagrams import Captured
from stringline.real_robot.emulators.fri.controller import EmulatedController
from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.program.control import ControlSocket, serve_ready
from stringline.real_robot.emulators.program.metronome import Metronome
from stringline.real_robot.emulators.program.operations import Operations
from stringline.real_robot.ipc.array_messages import Header

_LOOPBACK = "127.0.0.1"
_ANSWERS_TIMEOUT_S = 2.0
_COAX_S = 0.05  # After such a silence a client that is still coming up is asked again.
_GLANCE_S = 0.001  # Between two looks whether it has answered, while nobody counts time.
GRIPPER_FAULT = (
    "gripper_"  # Before the name of a fault that is the gripper's, not the controller's.
)


class Wire:
    """The connection of one controller.

    Args:
        controller: Who speaks.
        port: Of the client, on this computer.
        capture: File that keeps every datagram of the client, or None.
    """

    def __init__(
        self, controller: EmulatedController, port: int, capture: Path | None = None
    ) -> None:
        self.controller = controller
        self.port = port
        self.periods = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((_LOOPBACK, 0))
        self._capture = None if capture is None else capture.open("wb", buffering=0)
        self._asked_at = 0.0

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self.socket.fileno()

    def reboot(self, controller: EmulatedController) -> None:
        """Begins anew with another controller, as if nothing had been sent."""
        self.serve()
        self.controller = controller
        self.periods = 0
        if self._capture is not None:
            self._capture.seek(0)
            self._capture.truncate()

    def serve(self) -> None:
        """Takes what the client has sent."""
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                data = self.socket.recv(LONGEST_MESSAGE + 1)
                active = self.controller.state is SessionState.COMMANDING_ACTIVE
                taken = self.controller.receive(data)
                if self._capture is not None:
                    self._capture.write(Captured(self.periods, active, taken, data).to_bytes())

    def tick(self, *, judged: bool = True) -> None:
        """Goes on by a period."""
        self.serve()
        self.periods += 1
        self.tell(self.controller.tick(judged=judged))

    def coax(self) -> None:
        """Goes on while nobody counts time: as soon as the client has answered, and now and then until it does."""
        if self.controller.answered or time.monotonic() - self._asked_at > _COAX_S:
            self.tick(judged=False)

    def tell(self, datagrams: list[bytes]) -> None:
        """Sends to the client, whether or not it is there."""
        self._asked_at = time.monotonic()
        for data in datagrams:
            with contextlib.suppress(OSError):
                self.socket.sendto(data, (_LOOPBACK, self.port))

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()
        if self._capture is not None:
            self._capture.close()


class FriServer:
    """Serves one client and the drivers until the client says goodbye.

    Args:
        cell: The world with its controllers.
        ports: Of the drivers, by arm.
        listener: Socket where the client connects.
        real_time: Whether time goes on by itself. Else sessions come up by themselves, and from the
            first episode on there is one period per `advance` message.
        phase: By which share of a period each controller is behind the one before it; they have no
            common clock.
        capture: Folder for what drivers send, a file per arm, or None.
    """

    def __init__(
        self,
        cell: EmulatedCell,
        ports: Mapping[str, int],
        listener: socket.socket,
        *,
        real_time: bool,
        phase: float = 0.0,
        capture: Path | None = None,
    ) -> None:
        self._cell = cell
        self._real_time = real_time
        self._phase = phase
        self._benches = [] if cell.bench is None else [cell.bench]
        self._wires = {
            arm: Wire(controller, ports[arm], None if capture is None else capture / f"{arm}.bin")
            for arm, controller in cell.controllers.items()
        }
        operations = Operations(
            cell.plant,
            begin=self._begin,
            advance=self._advance_after,
            fault=self._fault,
            report=self._report,
            reboot=self._reboot,
            nudge=self._nudge,
        )
        self._control = ControlSocket(listener, operations)
        self._begun = self._patient = False

    @property
    def _timed(self) -> bool:
        """Whether periods begin by themselves: in real time, and while clients come up."""
        return self._real_time or not (self._begun or self._patient)

    def run(self) -> None:
        """Serves until the client leaves, then closes everything."""
        period_s = self._cell.plant.period_s if self._real_time else _GLANCE_S
        beats = Metronome(list(self._wires), period_s, self._phase, time.monotonic())
        try:
            while not self._control.left:
                timed = self._timed
                for arm in beats.take(time.monotonic()) if timed else ():
                    self._beat(arm)
                timeout_s = max(0.0, beats.next - time.monotonic()) if timed else None
                serve_ready([*self._wires.values(), *self._benches, self._control], timeout_s)
        finally:
            for wire in self._wires.values():
                wire.close()
            for bench in self._benches:
                bench.close()
            self._cell.plant.close()

    def _beat(self, arm: str) -> None:
        """Goes on with one arm; the first one's beat is the world's."""
        first = arm == next(iter(self._wires))
        if not self._real_time:
            self._wires[arm].coax()
            if first:
                self._tick_grippers()
            return
        if first:
            self._advance()
        self._wires[arm].tick()

    def _report(self, header: Header) -> Header:
        return {
            "report": {arm: wire.controller.report() for arm, wire in self._wires.items()},
            "grippers": {
                arm: report for bench in self._benches for arm, report in bench.report().items()
            },
        }

    def _reboot(self, header: Header) -> Header:
        self._cell.reboot()
        self._begun = False
        self._patient = bool(header.get("patient"))
        for arm, wire in self._wires.items():
            wire.reboot(self._cell.controllers[arm])
        return {}

    def _fault(self, arm: str, kind: str, count: int) -> None:
        if kind.startswith(GRIPPER_FAULT) and self._cell.bench is not None:
            self._cell.bench.fault(arm, kind.removeprefix(GRIPPER_FAULT), count)
        else:
            self._wire(arm).controller.fault(kind, count)

    def _nudge(self, header: Header) -> Header:
        wire = self._wire(str(header["arm"]))
        if self._begun or self._real_time:
            raise ValueError(
                "Controllers are nudged in lock-step, before the first episode; after that they "
                "go by `advance`."
            )
        wire.tick(judged=False)
        return {}

    def _wire(self, arm: str) -> Wire:
        if arm not in self._wires:
            raise unknown_name("arm", arm, self._wires)
        return self._wires[arm]

    def _begin(self, seed: int, options: Mapping[str, float]) -> None:
        told = self._cell.begin(seed, options)
        self._begun = True
        for arm, wire in self._wires.items():
            wire.serve()
            wire.controller.answers = 0
            wire.periods = wire.periods + 1
            wire.tell(told[arm])

    def _advance_after(self, wanted: Mapping[str, int]) -> None:
        """Goes on by one period once every controller has got as many answers as its driver has sent."""
        deadline = time.monotonic() + _ANSWERS_TIMEOUT_S
        while (
            late := [
                arm
                for arm, wire in self._wires.items()
                if wire.controller.answers < wanted.get(arm, 0)
            ]
        ) and (time.monotonic() < deadline):
            serve_ready([self._wires[arm] for arm in late], 0.05)
        if late:
            raise ValueError(
                f"No new answer has reached {', '.join(late)} within {_ANSWERS_TIMEOUT_S} s."
            )
        self._advance()
        for wire in self._wires.values():
            wire.tick()

    def _tick_grippers(self) -> None:
        for bench in self._benches:
            bench.serve()
            bench.tick()

    def _advance(self) -> None:
        for bench in self._benches:
            bench.serve()
        self._cell.advance()
        for bench in self._benches:
            bench.tick()
