"""One emulated drake-iiwa-driver in its multicast group: what reaches it, what it publishes, and others who do the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.lcm.channels import Channels
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink
from stringline.real_robot.emulators.fri.controller import EVENTS as CONTROLLER_EVENTS
from stringline.real_robot.emulators.fri.controller import EmulatedController
from stringline.real_robot.emulators.lcm.command_check import CapturedCommand
from stringline.real_robot.emulators.lcm.emulated_program import EmulatedProgram, ProgramSettings
from stringline.real_robot.emulators.lcm.status_faults import LIES, Lies
from stringline.real_robot.emulators.program.faulty_network import KINDS, Road
from stringline.real_robot.ipc.array_messages import Json

EVENTS = ("cut", "mend", "foreign", "twin", "crash", "revive")
_OF_CONTROLLER = tuple(name for name in CONTROLLER_EVENTS if name not in EVENTS)
FAULTS = (*KINDS, *(f"command_{kind}" for kind in KINDS), *LIES, *EVENTS, *_OF_CONTROLLER)


class RoughLink(LcmLink):
    """A link whose datagrams meet with faults on their way out.

    Attributes:
        road: That way.
    """

    road: Road

    def _send(self, data: bytes) -> bool:
        return all([super(RoughLink, self)._send(one) for one in self.road.carry(data)])

    def publish_beside(self, channel: str, payload: bytes) -> None:
        """Publishes what is kept back by a cut only."""
        if not self.road.cut:
            for data in self._packed(channel, payload):
                super()._send(data)

    def tell_late(self) -> None:
        """Goes on by a period and sends what was late."""
        for data in self.road.pass_period():
            super()._send(data)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a station is, and who moves what.

    Attributes:
        address: `group:port` of LCM.
        channels: Of the program.
        capture: File that keeps what reaches the program from its client, or None.
    """

    address: str
    channels: Channels
    capture: Path | None = None


class Station:
    """The program with its connections.

    Args:
        controllers: Its arms, in its order.
        place: Where it is.
        settings: How the program is started.

    Attributes:
        arms: Names.
        program: The program.
        heard: Commands of the client since somebody began to count.
    """

    def __init__(
        self, controllers: Mapping[str, EmulatedController], place: Place, settings: ProgramSettings
    ) -> None:
        self.arms = tuple(controllers)
        self._place = place
        self._settings = settings
        self._capture = None if place.capture is None else place.capture.open("wb", buffering=0)
        self._others = LcmLink(place.address, channels=frozenset())
        self._others.open()
        self._link = RoughLink(place.address, channels=frozenset({place.channels.command}))
        self.reboot(controllers)

    def reboot(self, controllers: Mapping[str, EmulatedController]) -> None:
        """Begins anew, as another process would: it speaks from another port."""
        self._controllers = dict(controllers)
        self._link.road = Road()
        self._back = Road()
        self._lies = Lies()
        self._link.open()
        self.program = EmulatedProgram(self._controllers, self._settings)
        self.heard = self._periods = self._asked = self._in_time = 0
        self._answered = False
        self._foreign = self._twin = 0
        if self._capture is not None:
            self._capture.seek(0)
            self._capture.truncate()

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._link.fileno()

    def begin(self) -> None:
        """Begins an episode: what was told before does not count."""
        self.serve()
        self.program.begin()
        # So that who reads the capture sees that commands begin anew.
        self.heard = 0
        self._periods = self._periods + 2
        if self._capture is not None and self._capture.tell():
            self._capture.write(CapturedCommand(self._periods, False, b"").to_bytes())

    def serve(self) -> None:
        """Takes what has come in."""
        for message in self._link.receive():
            if message.source == self._others.own:
                self.program.obey(message.payload)
                continue
            self.heard = self.heard + 1
            self._answered = True
            for arrived in self._back.carry(message.payload):
                self._take(arrived)

    def _take(self, payload: bytes) -> None:
        """Hands on what has reached the program."""
        if self._capture is not None:
            passed_on = any(self._passed_on(arm) for arm in self.arms)
            self._capture.write(CapturedCommand(self._periods, passed_on, payload).to_bytes())
        self.program.obey(payload)

    def _passed_on(self, arm: str) -> bool:
        active = self._controllers[arm].state is SessionState.COMMANDING_ACTIVE
        return active and not self.program.inhibited(arm) and not self.program.ended

    def tick(self, arms: tuple[str, ...], host_us: int | None, *, counted: bool) -> None:
        """Goes on by a period of some of its arms, and publishes what came of it.

        Args:
            arms: Whose controllers send their messages.
            host_us: As in `EmulatedProgram.step`.
            counted: Whether a period without a new command is one that was not answered in time.
        """
        self.serve()
        for late in self._back.pass_period():
            self._take(late)
        self._link.tell_late()
        if self._foreign:
            self._foreign -= 1
            self._command_as_somebody_else()
        if self.arms[0] in arms:
            self._periods += 1
            if counted:
                self._asked = self._asked + 1
                self._in_time = self._in_time + self._answered
            self._answered = False
        told = {arm: self._controllers[arm].tick(judged=bool(self.program.ended)) for arm in arms}
        for arm, datagrams in told.items():
            for data in datagrams:
                self.program.step(arm, data, host_us)
        self.publish()

    def publish(self) -> None:
        """Tells what the arms do, as after each step."""
        if self.program.ended:
            return
        channels = self._place.channels
        told = self._lies.told(self.program.status())
        self._link.publish(channels.status, told)
        self._link.publish_beside(channels.telemetry, self.program.telemetry())
        if self._twin:
            self._twin -= 1
            self._others.publish(channels.status, told)

    def _command_as_somebody_else(self) -> None:
        row = self.program.status()["joint_position_commanded"]
        self._others.publish(
            self._place.channels.command, IIWA_COMMAND.encode({"utime": 0, "joint_position": row})
        )
        self.serve()

    def fault(self, arm: str, kind: str, count: int) -> None:
        """Begins or ends a fault.

        Args:
            arm: Of the controller that is meant, where one is.
            kind: One of the connection (`drop`, `late`, `duplicate`, `reorder`, `corrupt`) for the
                next datagrams, with `command_` before it for the next commands; `cut` and `mend`
                it; a lie in the next statuses (`freeze`, `backwards`, `nan`, `joints`, `push`,
                `zeros`); for the next periods, `foreign` commands, or a `twin` that publishes the
                same statuses; `crash` the program and `revive` it; or what a controller of FRI
                knows: `stop`, `release`, `leave`, `restart`, `t1`, `t2`, `aut`, `period`, `load`.
            count: Of datagrams, statuses or periods, at least 1; or as a controller takes it.

        Raises:
            ValueError: There is no such fault.
        """
        match kind:
            case "cut" | "mend":
                self._link.road.cut = self._back.cut = kind == "cut"
            case "foreign":
                self._foreign = max(count, 1)
            case "twin":
                self._twin = max(count, 1)
            case "crash":
                self.program.ended = "by script"
            case "revive":
                self._link.open()
                self.program = EmulatedProgram(self._controllers, self._settings)
            case _ if kind in LIES:
                self._lies.plan(kind, count)
            case _ if kind in _OF_CONTROLLER:
                self._controllers[arm].fault(kind, count)
            case _ if kind in FAULTS:
                road = self._back if kind.startswith("command_") else self._link.road
                road.plan(kind.removeprefix("command_"), count)
            case _:
                raise unknown_name("fault", kind, FAULTS)

    def report(self, arm: str) -> dict[str, Json]:
        """Returns how an arm fared: see `ProgramReport`."""
        controller = self._controllers[arm]
        return {
            "periods": self._asked,
            "in_time": self._in_time,
            "stops": list(controller.stops),
            "state": controller.state.name,
            "ended": self.program.ended,
            "inhibited": self.program.inhibited(arm),
        }

    def close(self) -> None:
        """Leaves the group."""
        self._link.close()
        self._others.close()
        if self._capture is not None:
            self._capture.close()
