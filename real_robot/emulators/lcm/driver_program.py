"""One emulated drake-iiwa-driver in its multicast group, and other programs that interfere."""

from collections.abc import Mapping
from pathlib import Path

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.lcm.channels import Channels
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink
from stringline.real_robot.emulators.fri.controller import EVENTS as CONTROLLER_EVENTS
from stringline.real_robot.emulators.fri.controller import EmulatedController
from stringline.real_robot.emulators.lcm.emulated_program import EmulatedProgram
from stringline.real_robot.emulators.lcm.status_faults import STATUS_FAULTS, StatusFaults
from stringline.real_robot.emulators.program.capture_file import Captured, CaptureFile
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings
from stringline.real_robot.emulators.program.faulty_channel import KINDS, FaultyChannel
from stringline.real_robot.ipc.array_messages import Json

EVENTS = ("cut", "mend", "foreign", "twin", "crash", "revive")
_OF_CONTROLLER = tuple(name for name in CONTROLLER_EVENTS if name not in EVENTS)
FAULTS = (
    *KINDS,
    *(f"command_{kind}" for kind in KINDS),
    *STATUS_FAULTS,
    *EVENTS,
    *_OF_CONTROLLER,
)


class FaultyLink(LcmLink):
    """A link with faults of the datagrams that it sends.

    Attributes:
        channel: Faults on the way out.
    """

    channel: FaultyChannel

    def _send(self, data: bytes) -> bool:
        return all([super(FaultyLink, self)._send(one) for one in self.channel.carry(data)])

    def publish_unless_cut(self, channel: str, payload: bytes) -> None:
        """Publishes a message to which no fault but a cut applies."""
        if not self.channel.cut:
            for data in self._packed(channel, payload):
                super()._send(data)

    def send_late(self) -> None:
        """Advances by a period and sends the late datagrams."""
        for data in self.channel.pass_period():
            super()._send(data)


class DriverProgramEmulator:
    """The program with its connections.

    Args:
        controllers: Controllers of its arms, in its order.
        address: `group:port` of LCM.
        capture: File that records the commands that reach the program, or None.

    Attributes:
        received: Commands of the client in this episode.
    """

    def __init__(
        self,
        controllers: Mapping[str, EmulatedController],
        address: str,
        channels: Channels,
        settings: LcmSettings,
        capture: Path | None,
    ) -> None:
        self.arms = tuple(controllers)
        self.address = address
        self._channels = channels
        self._settings = settings
        self._capture = CaptureFile(capture)
        self._others = LcmLink(self.address, channels=frozenset())
        self._others.open()
        self._link = FaultyLink(self.address, channels=frozenset({self._channels.command}))
        self.reboot(controllers)

    def reboot(self, controllers: Mapping[str, EmulatedController]) -> None:
        """Begins again as another process, which publishes from another port."""
        self._controllers = dict(controllers)
        self._link.channel = FaultyChannel()
        self._commands = FaultyChannel()
        self._faults = StatusFaults()
        self._link.open()
        self.program = EmulatedProgram(self._controllers, self._settings)
        self.received = self._periods = self._asked = self._in_time = 0
        self._answered = False
        self._foreign = self._twin = 0
        self._capture.clear()

    def skip(self, arm: str, periods: int) -> None:
        """Counts periods without commands, for which this process was too late."""
        if arm == self.arms[0]:
            self._periods += periods

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._link.fileno()

    def begin(self) -> None:
        """Begins an episode: commands before it do not count."""
        self.serve()
        self.program.begin()
        self.received = 0
        # The gap shows readers of the capture that commands begin again.
        self._periods += 2
        if not self._capture.empty:
            self._capture.write(Captured(self._periods, False, b"").to_bytes())

    def serve(self) -> None:
        """Receives the commands that have arrived."""
        for message in self._link.receive():
            if message.source == self._others.own:
                self.program.receive(message.payload)
                continue
            self.received += 1
            self._answered = True
            for arrived in self._commands.carry(message.payload):
                self._take(arrived)

    def _take(self, payload: bytes) -> None:
        """Passes a command on to the program."""
        passed_on = any(self._passed_on(arm) for arm in self.arms)
        self._capture.write(Captured(self._periods, passed_on, payload).to_bytes())
        self.program.receive(payload)

    def _passed_on(self, arm: str) -> bool:
        active = self._controllers[arm].state is SessionState.COMMANDING_ACTIVE
        return active and not self.program.inhibited(arm) and not self.program.ended

    def tick(self, arms: tuple[str, ...], host_us: int | None, *, counted: bool) -> None:
        """Advances by a period of some of its arms, and publishes the status.

        If `counted`, a period without a new command counts as not answered in time. `host_us` is
        that of `EmulatedProgram.step`.
        """
        self.serve()
        for late in self._commands.pass_period():
            self._take(late)
        self._link.send_late()
        if self._foreign:
            self._foreign -= 1
            self._command_as_another_client()
        if self.arms[0] in arms:
            self._periods += 1
            if counted:
                self._asked += 1
                self._in_time += self._answered
            self._answered = False
        messages = {
            arm: self._controllers[arm].tick(judged=bool(self.program.ended)) for arm in arms
        }
        for arm, datagrams in messages.items():
            for data in datagrams:
                self.program.step(arm, data, host_us)
        self.publish()

    def publish(self) -> None:
        """Publishes the status of the arms, as after each step."""
        if self.program.ended:
            return
        channels = self._channels
        status = self._faults.encode(self.program.status())
        self._link.publish(channels.status, status)
        self._link.publish_unless_cut(channels.telemetry, self.program.telemetry())
        if self._twin:
            self._twin -= 1
            self._others.publish(channels.status, status)

    def _command_as_another_client(self) -> None:
        row = self.program.status()["joint_position_commanded"]
        self._others.publish(
            self._channels.command, IIWA_COMMAND.encode({"utime": 0, "joint_position": row})
        )
        self.serve()

    def fault(self, arm: str, kind: str, count: int) -> None:
        """Begins or ends a fault.

        A fault of the connection (`drop`, `late`, `duplicate`, `reorder`, `corrupt`) applies to the
        next `count` datagrams, or with the prefix `command_` to the next commands; `freeze`,
        `backwards`, `nan`, `joints`, `push` and `zeros` to the next statuses. For the next periods
        there are `foreign` commands, or a `twin` that publishes the same statuses. `cut` and
        `mend`: the connection; `crash` and `revive`: the program. Others are those of an FRI
        controller.

        Raises:
            ValueError: The fault is unknown.
        """
        match kind:
            case "cut" | "mend":
                self._link.channel.cut = self._commands.cut = kind == "cut"
            case "foreign":
                self._foreign = max(count, 1)
            case "twin":
                self._twin = max(count, 1)
            case "crash":
                self.program.ended = "by script"
            case "revive":
                self._link.open()
                self.program = EmulatedProgram(self._controllers, self._settings)
            case _ if kind in STATUS_FAULTS:
                self._faults.plan(kind, count)
            case _ if kind in _OF_CONTROLLER:
                self._controllers[arm].fault(kind, count)
            case _ if kind in FAULTS:
                commands = kind.startswith("command_")
                channel = self._commands if commands else self._link.channel
                channel.plan(kind.removeprefix("command_"), count)
            case _:
                raise unknown_name("fault", kind, FAULTS)

    def report(self, arm: str) -> dict[str, Json]:
        """Returns the statistics of an arm: see `ProgramReport`."""
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
        self._capture.close()
