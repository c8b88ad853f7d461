"""An operator supervises a policy: hold, end, home, reset after a fault, and taking over."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.operator_hand import Hand, NoKeys, after, until

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.datasets.contract.contract import Array, Observation
from stringline.policies.remote.protocol import RemoteUnavailableError
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.device.device_process import DeviceError, DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver, AlohaLeaders
from stringline.real_robot.emulators.plants.plant import save_hand
from stringline.real_robot.emulators.program.emulator_client import Emulator, LeaderEmulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.operator.operator_keys import Key
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]
BLIND = ALOHA.contract([], 50.0)


class NoCameras:
    def frames(self) -> dict[str, Array]:
        return {}


class Circling:
    """A policy that lets the left waist swing slowly, and counts its sessions."""

    sessions = 0

    def __init__(self) -> None:
        type(self).sessions += 1

    def plan(self, observation: Observation) -> ActionChunk:
        due = float(observation["time"]) + 0.02 * np.arange(30, dtype=np.float64)
        way = np.tile(ALOHA.home, (30, 1))
        way[:, 0] = 0.2 * np.sin(due)
        return ActionChunk(due, way.astype(np.float32))


class Thinking(Circling):
    """Plans for two seconds; in its first session only until the arms have braked after a plan."""

    sessions = 0
    thinks: ClassVar[bool] = False
    device: ClassVar[DeviceProcess]

    def __init__(self) -> None:
        super().__init__()
        self._answers = 0

    def plan(self, observation: Observation) -> ActionChunk:
        if self._answers and type(self).sessions == 1:
            type(self).thinks = True
            until(
                lambda: self.device.latest().session == 2
            )  # A session begins when the arms have come to rest.
        self._answers += 1
        due = float(observation["time"]) + 0.02 * np.arange(100, dtype=np.float64)
        way = np.tile(ALOHA.home, (100, 1))
        way[:, 0] = 0.2 * np.sin(2 * due)
        return ActionChunk(due, way.astype(np.float32))


@pytest.fixture
def device(emulator: Emulator) -> Iterator[DeviceProcess]:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    with DeviceProcess(
        driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    ) as running:
        running.connect()
        running.arm()
        Circling.sessions = 0
        yield running


def run(
    supervision: Supervision, seconds: float = 20.0, policy: type[Circling] = Circling
) -> RealTimeEpisode:
    robot = RealTimeRobot(supervision.device, NoCameras(), BLIND, ALOHA)
    return SupervisedRun(robot, policy, 10, supervision).run(
        seconds, done=lambda: False, report=lambda *_: None
    )


@pytest.mark.slow
def test_space_holds_until_space_and_q_ends(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Space is pressed while the policy plans, and acts at once."""
    seen: list[DeviceState] = []
    held: list[Vector] = []

    def moved() -> float:
        return float(np.ptp([state.command[0] for state in seen if state.session == 1] or [0.0]))

    def look() -> None:
        time.sleep(0.25)  # It takes a moment to come to rest.
        held.append(device.latest().command)
        time.sleep(0.1)
        held.append(device.latest().command)

    def follow() -> bool:
        """Follows the arms while the policy plans."""
        seen.append(device.latest())
        return Thinking.thinks and moved() > 0.05

    Thinking.sessions, Thinking.thinks, Thinking.device = 0, False, device
    hand = Hand([(follow, Key.HOLD), (after(0.5), Key.END)], [Key.HOLD])
    hand.before_answer = look
    episode = run(Supervision(device, ALOHA, hand, watchers=(seen.extend,)), policy=Thinking)
    assert np.array_equal(held[0], held[1])
    assert not episode.fault
    assert Thinking.sessions == 2  # Plans from before the hold do not count after it.
    assert episode.plans >= 2
    assert np.ptp([state.command for state in seen if state.session == 2], axis=0).max() == 0.0
    assert hand.awaited == [(Key.HOLD, Key.END, Key.HOME)]
    assert len({state.tick for state in seen}) > 30
    assert capsys.readouterr().out.count("The arms hold.") == 2


@pytest.mark.slow
@pytest.mark.parametrize("key", [Key.HOLD, Key.END])
def test_keys_end_a_run_whose_device_process_is_frozen(device: DeviceProcess, key: Key) -> None:
    frozen: list[float] = []

    def freeze() -> bool:
        if not frozen and device.latest().mode is Mode.RUN:
            assert device.pid is not None
            os.kill(device.pid, signal.SIGSTOP)
            frozen.append(time.monotonic())
        return bool(frozen)

    hand = Hand([(freeze, key)], [Key.END])
    with pytest.raises(DeviceError, match="does not answer.*use the emergency stop"):
        run(Supervision(device, ALOHA, hand))
    assert time.monotonic() - frozen[0] < 5.0


class Away(Circling):
    """A policy on a server that is away after two plans, and for the next sessions."""

    sessions = 0
    away: ClassVar[int] = 0

    def __init__(self) -> None:
        if type(self).sessions and type(self).away:
            type(self).away -= 1
            raise RemoteUnavailableError("The server is away.")
        super().__init__()
        self._plans = 0

    def plan(self, observation: Observation) -> ActionChunk:
        self._plans += 1
        if self._plans > 2 and type(self).away:
            raise RemoteUnavailableError("The server has ended the connection.")
        return super().plan(observation)


@pytest.mark.slow
def test_arms_hold_while_the_policy_is_away_and_follow_its_next_session(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[DeviceState] = []
    Away.sessions, Away.away = 0, 1
    episode = run(
        Supervision(device, ALOHA, NoKeys(), watchers=(seen.extend,)), seconds=1.5, policy=Away
    )
    assert not episode.fault
    assert Away.sessions == 2
    assert [state.session for state in seen if state.mode is Mode.RUN][-1] > 1
    told = capsys.readouterr().out
    assert "has ended the connection. The arms hold; the policy is asked again for up to 60" in told
    assert told.count("The policy has answered.") == 1


@pytest.mark.slow
def test_a_key_ends_the_wait_for_a_policy(device: DeviceProcess) -> None:
    Away.sessions, Away.away = 0, 1000
    hand = Hand([(lambda: Away.away < 1000, Key.END)])
    run(Supervision(device, ALOHA, hand), policy=Away)
    assert Away.sessions == 1
    held = device.latest().command
    time.sleep(0.1)
    assert np.array_equal(device.latest().command, held)


@pytest.mark.slow
def test_a_policy_that_stays_away_ends_the_run_with_its_error(device: DeviceProcess) -> None:
    Away.sessions, Away.away = 0, 1000
    with pytest.raises(RemoteUnavailableError, match="The server is away"):
        run(Supervision(device, ALOHA, NoKeys(), reconnect_s=0.5), policy=Away)


@pytest.mark.slow
def test_h_brings_the_arms_home(device: DeviceProcess) -> None:
    hand = Hand([(after(0.6), Key.HOME)])
    run(Supervision(device, ALOHA, hand, home_s=0.5))
    assert np.abs(device.latest().command - ALOHA.home).max() < 0.01


@pytest.mark.slow
def test_a_key_stops_the_way_home(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    away = np.array([ALOHA.home])
    away[0, 0] = 1.0
    Approach(device, ALOHA).to(away[0], 0.5, "there")

    def away_from_there() -> bool:
        return device.latest().command[0] < 0.9

    hand = Hand([(after(0.0), Key.HOME), (away_from_there, Key.HOLD)])
    run(Supervision(device, ALOHA, hand, home_s=4.0))
    stopped = device.latest().command[0]
    assert 0.1 < stopped < 0.99
    time.sleep(0.2)
    assert device.latest().command[0] == stopped
    assert "The arms hold." in capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_brakes_at_once(device: DeviceProcess) -> None:
    """The plan in force lasts for 0.6 s."""
    seen: list[DeviceState] = []

    def interrupt(states: list[DeviceState]) -> None:
        seen.extend(states)
        if states and abs(states[-1].command[0]) > 0.05:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Supervision(device, ALOHA, NoKeys(), watchers=(interrupt,)))
    held = device.latest().command
    assert device.latest().session > seen[-1].session
    time.sleep(0.2)
    assert np.array_equal(device.latest().command, held)


@pytest.mark.slow
def test_a_fault_during_a_hold_is_reported_and_needs_a_reset(
    emulator: Emulator, device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        emulator.fault("left", "overload", 2)
        until(lambda: device.latest().mode is Mode.FAULT)

    hand = Hand([(after(0.3), Key.HOLD)], [Key.HOLD, Key.END])
    hand.before_answer = fail
    episode = run(Supervision(device, ALOHA, hand))
    assert hand.awaited[1] == (Key.RESET, Key.END)
    assert "left/shoulder" in episode.fault[0]
    assert "left/shoulder" in capsys.readouterr().out
    assert device.latest().mode is Mode.FAULT  # The operator has not reset it.


@pytest.mark.slow
def test_a_fault_during_braking_is_reported_and_needs_a_reset(
    emulator: Emulator, device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    robot, hand = RealTimeRobot(device, NoCameras(), BLIND, ALOHA), Hand([], [Key.END])
    moving: list[DeviceState] = []

    def done() -> bool:
        if not moving or abs(moving[-1].command[0]) < 0.03:
            return False
        emulator.fault("left", "overload", 2)
        return True

    supervised = SupervisedRun(robot, Circling, 10, Supervision(device, ALOHA, hand))
    episode = supervised.run(20.0, done=done, report=lambda state, _: moving.append(state))
    assert hand.awaited == [(Key.RESET, Key.END)]
    assert "left/shoulder" in episode.fault[0]
    assert "left/shoulder" in capsys.readouterr().out
    assert device.latest().mode is Mode.FAULT


@pytest.mark.slow
def test_the_death_of_the_device_process_is_an_error(device: DeviceProcess) -> None:
    def kill(states: list[DeviceState]) -> None:
        if states and states[-1].mode is Mode.RUN and device.pid is not None:
            os.kill(device.pid, signal.SIGKILL)

    with pytest.raises(DeviceError, match="The device process died"):
        run(Supervision(device, ALOHA, NoKeys(), watchers=(kill,)), seconds=5.0)


class Confused(Circling):
    """A policy whose first session plans no finite action."""

    sessions = 0

    def plan(self, observation: Observation) -> ActionChunk:
        chunk = super().plan(observation)
        return (
            ActionChunk(chunk.time, np.full_like(chunk.action, np.nan))
            if type(self).sessions == 1
            else chunk
        )


@pytest.mark.slow
def test_after_a_fault_r_continues_and_without_keys_the_run_ends(device: DeviceProcess) -> None:
    robot = RealTimeRobot(device, NoCameras(), BLIND, ALOHA)
    endings = []
    for hand in (Hand([(after(1.0), Key.END)], [Key.RESET]), NoKeys()):
        Confused.sessions = 0
        supervision = Supervision(device, ALOHA, hand)
        supervised = SupervisedRun(robot, Confused, 2, supervision)
        endings.append(supervised.run(20.0, done=lambda: False, report=lambda *_: None))
        assert Confused.sessions == (2 if isinstance(hand, Hand) else 1)
    reset, ended = endings
    assert not reset.fault
    assert reset.counts[Reason.BAD_CHUNK] >= 5
    assert "a chunk was rejected" in ended.fault[0]


@pytest.fixture
def leaders(tmp_path: Path) -> Iterator[AlohaLeaders]:
    end = ALOHA.home.copy()
    end[0] = 0.25
    save_hand(tmp_path / "way.npz", np.array([0.0]), end[None])
    with LeaderEmulator(hand=tmp_path / "way.npz") as emulated:
        arms = AlohaLeaders(emulated.ports, answer_timeout_s=0.05)
        arms.connect()
        yield arms
        arms.close()


@pytest.mark.slow
def test_t_lets_a_person_lead_and_the_states_are_recorded(
    device: DeviceProcess, leaders: AlohaLeaders
) -> None:
    states: list[tuple[DeviceState, Vector]] = []

    def there() -> bool:
        return bool(states) and abs(states[-1][0].arms.position[0] - 0.25) < 0.02

    hand = Hand([(after(0.4), Key.TAKE_OVER), (there, Key.TAKE_OVER), (after(0.4), Key.END)])
    led = Teleoperation(leaders, device, ALOHA, agree=0.5)
    run(
        Supervision(
            device, ALOHA, hand, leaders=led, record_by_hand=lambda *step: states.append(step)
        )
    )
    assert len(states) >= 5
    assert states[-1][0].arms.position[0] == pytest.approx(
        0.25, abs=0.02
    )  # The policy alone goes no further than 0.2.
    assert states[-1][1][0] == pytest.approx(0.25, abs=0.002)
    assert states[0][0].session < device.latest().session
    assert Circling.sessions == 2


@pytest.mark.slow
def test_only_active_keys_are_described(device: DeviceProcess, leaders: AlohaLeaders) -> None:
    led = Teleoperation(leaders, device, ALOHA)
    assert "t: take over" in Supervision(device, ALOHA, NoKeys(), leaders=led).describe_keys()
    keys = Supervision(device, ALOHA, NoKeys(), home_s=0.0).describe_keys()
    assert keys == "space: hold, again: continue; q: stop softly and end; r: continue after a fault"
