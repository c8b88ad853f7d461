"""The emulator of KUKA controllers with FRI: a UDP connection per controller."""

import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.messages import LONGEST_MESSAGE
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.controller import EmulatedController, QualityRule, t1_speed
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell, KukaServer
from stringline.real_robot.emulators.grippers.emulated_wsg import gripper_rig_of
from stringline.real_robot.emulators.program.capture_file import Captured, CaptureFile
from stringline.real_robot.emulators.program.emulator_server import (
    Served,
    free_udp_ports,
    kuka_world,
)
from stringline.real_robot.emulators.program.emulator_settings import FriSettings
from stringline.real_robot.ipc.array_messages import Header

_LOOPBACK = "127.0.0.1"
_WAKE_S = 0.05  # After such a silence a client that is still coming up gets another message.
_WAKING_PERIOD_S = 0.001  # Between two looks whether it has answered, while time does not count.
GRIPPER_FAULT = "gripper_"  # Prefix of the faults of grippers.


class Connection:
    """The connection of one controller to its client.

    Args:
        port: UDP port of the client, on this computer.
        capture: File that records every datagram of the client, or None.

    Attributes:
        periods: Periods since the controller was switched on.
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
        self._capture = CaptureFile(capture)
        self._sent_at = 0.0

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self.socket.fileno()

    def reboot(self, controller: EmulatedController) -> None:
        """Begins again with another controller, as if nothing had been sent."""
        self.serve()
        self.controller = controller
        self.periods = 0
        self._capture.clear()

    def serve(self) -> None:
        """Receives the client's datagrams."""
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                data = self.socket.recv(LONGEST_MESSAGE + 1)
                active = self.controller.state is SessionState.COMMANDING_ACTIVE
                taken = self.controller.receive(data)
                self._capture.write(Captured(self.periods, active, data, taken).to_bytes())

    def tick(self, *, judged: bool = True) -> None:
        """Advances by a period."""
        self.serve()
        self.periods += 1
        self.send(self.controller.tick(judged=judged))

    def wake(self) -> None:
        """Advances when the client has answered, or has been silent for a while."""
        if self.controller.answered or time.monotonic() - self._sent_at > _WAKE_S:
            self.tick(judged=False)

    def send(self, datagrams: list[bytes]) -> None:
        """Sends to the client, whether or not it exists."""
        self._sent_at = time.monotonic()
        for data in datagrams:
            with contextlib.suppress(OSError):
                self.socket.sendto(data, (_LOOPBACK, self.port))

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()
        self._capture.close()


class FriServer(KukaServer):
    """Serves one client and the FRI clients of the controllers.

    Args:
        ports: UDP ports of the drivers, by arm.
        capture: Folder for the datagrams of drivers, a file per arm, or None.
    """

    WRITE: ClassVar[str] = "answer"

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
        super().__init__(
            cell, listener, real_time=real_time, phase=phase, waking_s=_WAKING_PERIOD_S
        )
        self._by_arm = {
            arm: Connection(
                controller, ports[arm], None if capture is None else capture / f"{arm}.bin"
            )
            for arm, controller in cell.controllers.items()
        }
        self._patient = False

    @property
    def ports(self) -> dict[str, str]:
        """`address:number` that the driver of each arm opens."""
        return {arm: f"{_LOOPBACK}:{one.port}" for arm, one in self._by_arm.items()}

    @property
    def _connections(self) -> Sequence[Connection]:
        return list(self._by_arm.values())

    @property
    def _timed(self) -> bool:
        return self._real_time or not (self._begun or self._patient)

    @property
    def _operations(self) -> Mapping[str, Callable[[Header], Header]]:
        return {**super()._operations, "nudge": self._nudge}

    def _cycle(self, arm: str) -> None:
        if not self._real_time:
            self._by_arm[arm].wake()
            if arm == self._first:
                self._serve_grippers()
                self._tick_grippers()
            return
        if arm == self._first:
            self._serve_grippers()
            self._advance_world()
        self._by_arm[arm].tick()

    def _report(self, header: Header) -> Header:
        return {
            "report": {arm: one.controller.report() for arm, one in self._by_arm.items()},
            "grippers": self._gripper_report(),
        }

    def _reboot(self, header: Header) -> Header:
        self._patient = bool(header.get("patient"))
        return super()._reboot(header)

    def _restart(self) -> None:
        for arm, connection in self._by_arm.items():
            connection.reboot(self._cell.controllers[arm])

    def _fault(self, arm: str, kind: str, number: int) -> None:
        if kind.startswith(GRIPPER_FAULT) and self._cell.gripper_rig is not None:
            self._cell.gripper_rig.fault(arm, kind.removeprefix(GRIPPER_FAULT), number)
        else:
            self._connection(arm).controller.fault(kind, number)

    def _nudge(self, header: Header) -> Header:
        connection = self._connection(str(header["arm"]))
        if self._begun or self._real_time:
            raise ValueError(
                "Controllers are nudged in lock-step, before the first episode; after that they "
                "go by `advance`."
            )
        connection.tick(judged=False)
        return {}

    def _connection(self, arm: str) -> Connection:
        if arm not in self._by_arm:
            raise unknown_name("arm", arm, self._by_arm)
        return self._by_arm[arm]

    def _begin(self, seed: int, options: Mapping[str, Any]) -> None:
        messages = self._cell.begin(seed, options)
        self._begun = True
        for arm, connection in self._by_arm.items():
            connection.serve()
            connection.controller.answers = 0
            connection.periods += 1
            connection.send(messages[arm])

    def _writes(self) -> Mapping[str, tuple[Served, int]]:
        return {arm: (one, one.controller.answers) for arm, one in self._by_arm.items()}

    def _step(self) -> None:
        self._serve_grippers()
        self._advance_world()
        for connection in self._by_arm.values():
            connection.tick()


def fri_server(settings: FriSettings, control: socket.socket, images: socket.socket) -> FriServer:
    """Returns the emulator."""
    embodiment, plant = kuka_world(settings, images)
    cell = EmulatedCell(
        embodiment,
        plant,
        version_of(settings.version),
        receive_multiplier=settings.receive_multiplier,
        restarts=not settings.no_restart,
        rule=QualityRule(
            fair=min(0.5, settings.good), good=settings.good, most_missed=settings.most_missed
        ),
        gripper_rig=gripper_rig_of(settings, tuple(embodiment.grippers), plant.period_s),
        t1_speed=t1_speed(unlimited=settings.t1_unlimited),
    )
    return FriServer(
        cell,
        _ports(tuple(cell.controllers), settings.ports),
        control,
        real_time=not settings.lock_step,
        phase=settings.phase,
        capture=settings.capture,
    )


def _ports(arms: tuple[str, ...], given: str) -> dict[str, int]:
    if not given:
        return dict(zip(arms, free_udp_ports(len(arms)), strict=True))
    numbers = given.split(",")
    if len(numbers) != len(arms) or not all(
        number.isdigit() and 0 < int(number) < 1 << 16 for number in numbers
    ):
        raise ValueError(f"--ports {given!r} is not a number for each of {', '.join(arms)}.")
    return dict(zip(arms, map(int, numbers), strict=True))
