"""LCM on networks that lose, delay and reorder: at the receiver no limit is ever exceeded."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.real_robot.poor_networks import PERIOD, Network, NetworkRig, Receiver, Weather

from stringline import IIWA14, SafetyLimits
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.kuka import kuka_driver
from stringline.real_robot.drivers.lcm import drake_program as driver_messages
from stringline.real_robot.drivers.lcm import lcm_driver
from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_STATUS,
    IIWA_STATUS_TELEMETRY,
    Channels,
)
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink, LcmMessage, Source
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.lcm.emulated_program import VERSION, EmulatedProgram
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant
from stringline.real_robot.emulators.program.arm_check import command_row
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings

CHANNELS = Channels()
LIMITS = SafetyLimits.of(
    IIWA14, cartesian_speed=None, acceleration=5.0, speed_share=0.25, margin_rad=0.02
)


class Group:
    """The members of a multicast group, who all receive what passes the network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.members: list[Member] = []

    def send(self, data: bytes, source: Source) -> None:
        self.network.send(lambda: [one.arrived.append((data, source)) for one in self.members])  # type: ignore[arg-type, return-value]


class Member(LcmLink):
    """A link of which the group is in this process."""

    def __init__(self, group: Group, channels: frozenset[str] | None = None) -> None:
        super().__init__(channels=channels)
        self.group = group
        self.arrived: list[tuple[bytes, Source]] = []

    @property
    def waiting(self) -> bool:
        return bool(self.arrived)

    def open(self) -> None:
        self._own = ("127.0.0.1", 40000 + len(self.group.members))
        self.group.members.append(self)

    def close(self) -> None:
        """Stays."""

    def receive(self) -> list[LcmMessage]:
        arrived, self.arrived[:] = list(self.arrived), []
        taken = [self._take(data, source) for data, source in arrived]
        return [message for message in taken if message is not None]

    def _send(self, data: bytes) -> bool:
        self.group.send(data, self._own)
        return True


class Program:
    """drake-iiwa-driver with its controller, on the network.

    Attributes:
        host_jump_s: By how much the clock of its host was set, so far.
        stamp_jump_s: By how much the clock of its controller was set.
    """

    def __init__(self, group: Group) -> None:
        self._network = group.network
        self._link = Member(group, frozenset({CHANNELS.command}))
        self._link.open()
        self._cell = EmulatedCell(
            IIWA14, FirstOrderPlant(IIWA14, period_s=PERIOD), VERSION, t1_speed=np.inf
        )
        self._controller = self._cell.controllers["arm"]
        self.program = EmulatedProgram(
            self._cell.controllers, LcmSettings(clock_samples=20, guard_s=0.25)
        )
        self.receiver = Receiver(LIMITS)
        self._row: tuple[float, ...] | None = None
        self._was_active = False
        self.host_jump_s = self.stamp_jump_s = 0.0
        self._next = self._network.now
        self._step()

    def _step(self) -> None:
        self._next += PERIOD
        self._network.at(self._next, self._step)
        new = False
        for message in self._link.receive():
            if row := command_row(message.payload):
                self.program.receive(message.payload)
                self._row, new = row, True
        self._cell.advance()
        for data in self._controller.tick():
            host_s = self._network.now + self.host_jump_s
            self.program.step("arm", data, round(1e6 * host_s))
        active = self._controller.state is SessionState.COMMANDING_ACTIVE
        if active and self._row is not None:
            self.receiver.take(np.array(self._row) if new else None)
        jump_us = round(1e6 * self.stamp_jump_s)
        status = self.program.status()
        if status["utime"] != -1:
            status["utime"] += jump_us  # type: ignore[operator]
        self._link.publish(CHANNELS.status, IIWA_STATUS.encode(status))
        clocks = IIWA_STATUS_TELEMETRY.decode(self.program.telemetry())
        clocks["iiwa_utime"] += jump_us  # type: ignore[operator]
        self._link.publish(CHANNELS.telemetry, IIWA_STATUS_TELEMETRY.encode(clocks))


Make = Callable[..., tuple[NetworkRig, Program]]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def build(seed: int = 0) -> tuple[NetworkRig, Program]:
        network = Network(seed)
        group = Group(network)

        def link(address: str, interface: str, ttl: int, channels: frozenset[str]) -> Member:
            return Member(group, channels)

        monkeypatch.setattr(lcm_driver, "LcmLink", link)
        for module in (kuka_driver, lcm_driver, driver_messages):
            if hasattr(module, "time"):
                monkeypatch.setattr(module, "time", network.clock())
            if hasattr(module, "select"):
                monkeypatch.setattr(module, "select", network.selector())
        program = Program(group)
        driver = LcmDriver({"arm": "239.255.76.67:7667"}, period_s=PERIOD)
        return NetworkRig(network, driver, IIWA14, LIMITS), program

    return build


def test_a_good_network_moves_the_arm_within_the_limits(make: Make) -> None:
    rig, program = make()
    faults = rig.swing(8.0)
    receiver = program.receiver
    assert faults == []
    assert receiver.stands < 0.01 * receiver.steps
    assert receiver.velocity > 0.9, "at full speed"
    assert receiver.moved > 1.0
    receiver.assert_within_limits()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "weather",
    [
        Weather(loss=0.1),
        Weather(loss=0.3),
        Weather(delay_s=(0.0, 0.012)),
        Weather(delay_s=(0.0, 0.03)),
        Weather(loss=0.1, delay_s=(0.0, 0.03)),
        Weather(delay_s=(0.03, 0.03)),
    ],
    ids=str,
)
def test_loss_delay_and_reordering_exceed_no_limit_at_the_receiver(
    make: Make, weather: Weather, seed: int
) -> None:
    """From the beginning of the motion; what cannot be moved within the limits stands."""
    rig, program = make(seed)
    rig.swing(0.5)
    rig.brake()
    rig.network.weather = weather
    faults = rig.swing(6.0)
    program.receiver.assert_within_limits()
    assert program.program.ended == ""
    if weather.loss == 0.1 and weather.delay_s[1] == 0.0:
        assert program.receiver.moved > 0.05, "it still moves"
    if weather.delay_s[1]:
        assert faults, "the operator learns of it"


@pytest.mark.slow
@pytest.mark.parametrize("jump_s", [0.02, 0.05, 0.5, 10.0, -0.02, -10.0])
@pytest.mark.parametrize("clock", ["host_jump_s", "stamp_jump_s"])
def test_clocks_that_are_set_exceed_no_limit_at_the_receiver(
    make: Make, clock: str, jump_s: float
) -> None:
    rig, program = make()
    rig.swing(3.0)
    moved = program.receiver.moved
    assert moved > 0.2
    stood = program.receiver.stands
    setattr(program, clock, jump_s)
    faults = rig.swing(4.0)
    program.receiver.assert_within_limits()
    if jump_s > 0:
        assert faults == []
        assert program.receiver.stands - stood < 10, "it goes on as if nothing had happened"
        assert program.receiver.moved > moved + 0.2
    elif jump_s < -1:
        assert faults, "time that goes backwards is a fault"


@pytest.mark.slow
def test_an_arm_that_is_sent_no_commands_is_a_fault_with_its_reason(make: Make) -> None:
    rig, program = make()
    rig.swing(3.0)
    rig.network.weather = Weather(delay_s=(0.009, 0.0095))
    faults = rig.swing(2.0)
    assert faults
    program.receiver.assert_within_limits()
    assert program.receiver.stands > 20
