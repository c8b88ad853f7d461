"""FRI on networks that lose, delay and reorder: at the controller no limit is ever exceeded."""

from collections.abc import Callable
from functools import partial

import pytest
from tests.real_robot.poor_networks import PERIOD, Network, NetworkRig, Receiver, Weather

from stringline import IIWA14, SafetyLimits
from stringline.real_robot.drivers.fri import fri_driver
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.drivers.kuka import kuka_driver
from stringline.real_robot.emulators.fri.controller import QualityRule
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant

VERSION = "1.15"
PORT = "127.0.0.1:30200"
LIMITS = SafetyLimits.of(
    IIWA14, cartesian_speed=None, acceleration=5.0, speed_share=0.25, margin_rad=0.02
)


class Link(FriLink):
    """A port whose controller is in this process."""

    def __init__(self, network: Network, answer: Callable[[bytes], None]) -> None:
        super().__init__(PORT)
        self.network, self.answer = network, answer
        self.arrived: list[bytes] = []

    @property
    def waiting(self) -> bool:
        return bool(self.arrived)

    def open(self) -> None:
        """Is open."""

    def close(self) -> None:
        """Stays."""

    def receive(self) -> list[bytes]:
        arrived, self.arrived[:] = list(self.arrived), []
        return arrived

    def send(self, data: bytes) -> bool:
        self.network.send(partial(self.answer, data))
        return True


class Controller:
    """The far end, which is patient: its session does not end for lost answers."""

    def __init__(self, network: Network, rule: QualityRule) -> None:
        self.network = network
        self._cell = EmulatedCell(
            IIWA14, FirstOrderPlant(IIWA14, period_s=PERIOD), version_of(VERSION), rule=rule
        )
        self.controller = self._cell.controllers["arm"]
        self.link = Link(network, self._answer)
        self.receiver = Receiver(LIMITS)
        self._taken = False
        self._next = network.now
        self._step()

    def _answer(self, data: bytes) -> None:
        self._taken |= self.controller.receive(data)

    def _step(self) -> None:
        self._next += PERIOD
        self.network.at(self._next, self._step)
        if self.controller.state is SessionState.COMMANDING_ACTIVE:
            self.receiver.take(self.controller.target.copy() if self._taken else None)
        else:
            self.receiver.begins_anew()
        self._taken = False
        self._cell.advance()
        for data in self.controller.tick():
            self.network.send(partial(self.link.arrived.append, data))


Make = Callable[..., tuple[NetworkRig, Controller]]
PATIENT = QualityRule(fair=0.0, good=0.0, excellent=0.9, most_missed=1000)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def build(seed: int = 0, rule: QualityRule = PATIENT) -> tuple[NetworkRig, Controller]:
        network = Network(seed)
        far = Controller(network, rule)
        monkeypatch.setattr(fri_driver, "FriLink", lambda *_: far.link)
        for module in (kuka_driver, fri_driver):
            monkeypatch.setattr(module, "time", network.clock())
        monkeypatch.setattr(kuka_driver, "select", network.selector())
        driver = FriDriver({"arm": PORT}, version=VERSION, period_s=PERIOD)
        return NetworkRig(network, driver, IIWA14, LIMITS), far

    return build


def test_a_good_network_moves_the_arm_within_the_limits(make: Make) -> None:
    rig, far = make()
    assert rig.swing(8.0) == []
    assert far.receiver.velocity > 0.9, "at full speed"
    assert far.receiver.moved > 1.0
    far.receiver.assert_within_limits()


@pytest.mark.slow
@pytest.mark.parametrize("rule", [PATIENT, QualityRule()], ids=["patient", "usual"])
@pytest.mark.parametrize(
    "weather",
    [
        Weather(loss=0.1),
        Weather(loss=0.3),
        Weather(delay_s=(0.0, 0.012)),
        Weather(delay_s=(0.0, 0.03)),
        Weather(loss=0.1, delay_s=(0.0, 0.03)),
    ],
    ids=str,
)
def test_loss_delay_and_reordering_exceed_no_limit_at_the_controller(
    make: Make, weather: Weather, rule: QualityRule
) -> None:
    rig, far = make(rule=rule)
    rig.swing(3.0)
    rig.network.weather = weather
    rig.swing(4.0)
    far.receiver.assert_within_limits()
    assert far.controller.stops == []


@pytest.mark.slow
@pytest.mark.parametrize("jump_ms", [50, 10_000, -50, -10_000])
def test_a_clock_that_is_set_changes_nothing(make: Make, jump_ms: int) -> None:
    rig, far = make()
    rig.swing(3.0)
    far.controller._stamp_ms += jump_ms
    moved = far.receiver.moved
    assert rig.swing(3.0) == []
    assert far.receiver.moved > moved + 0.4
    far.receiver.assert_within_limits()
