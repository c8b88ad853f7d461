"""Leaders lead followers over pseudo-terminals on both sides, and the episode is recorded."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.deployment.leader_teleoperation import TeleopEpisode, Teleoperation
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import ArmState, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver, AlohaLeaders
from stringline.real_robot.emulators.plants.plant import save_hand
from stringline.real_robot.emulators.program.emulator_client import Emulator, LeaderEmulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]

WAIST, SHOULDER, GRIPPER = 0, 1, 13


def led_to() -> Vector:
    """A motion of the hand: left shoulder beyond the follower's range, right gripper half open."""
    q = ALOHA.home.copy()
    q[[WAIST, SHOULDER, GRIPPER]] = [0.4, -2.1, 0.5]
    return q


class Cameras:
    """A camera that takes an image every tenth of a second."""

    def frames(self) -> dict[str, Array]:
        captured = np.floor(time.monotonic() * 10) / 10
        rgb = np.full((4, 6, 3), round(captured * 10) % 256, np.uint8)
        return {
            "rgb/overhead": rgb,
            "time/overhead": np.asarray(captured),
            "intrinsics/overhead": np.eye(3, dtype=np.float32),
        }


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[LeaderEmulator]:
    save_hand(
        tmp_path / "way.npz",
        np.array([0.0, 0.2, 1.0]),
        np.stack([ALOHA.home, ALOHA.home, led_to()]),
    )
    with LeaderEmulator(hand=tmp_path / "way.npz") as running:
        yield running


@pytest.fixture
def leaders(hand: LeaderEmulator) -> Iterator[AlohaLeaders]:
    arms = AlohaLeaders(hand.ports, answer_timeout_s=0.05)
    arms.connect()
    yield arms
    arms.close()


@pytest.fixture
def device(emulator: Emulator, tmp_path: Path) -> Iterator[DeviceProcess]:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    with DeviceProcess(driver, ALOHA, limits, log=LogPlan(tmp_path / "log")) as running:
        running.connect()
        running.arm()
        yield running


def attributes(contract: Contract) -> EpisodeAttributes:
    return EpisodeAttributes(contract, "lean_back", 3, source="teleoperation")


def nothing(*_: object) -> None:
    pass


@pytest.mark.slow
def test_a_hand_leads_the_followers_and_the_episode_is_in_the_store(
    hand: LeaderEmulator, leaders: AlohaLeaders, device: DeviceProcess, tmp_path: Path
) -> None:
    seeing, cameras = ALOHA.contract([Camera("overhead", 4, 6)], 50.0), Cameras()
    begun: list[float] = []

    def begin(_: DeviceState, seconds: float) -> None:
        if seconds > 0.1 and not begun:
            begun.append(seconds)
            hand.begin(0)

    teleoperation = Teleoperation(leaders, device, ALOHA)
    with DeploymentRecorder(
        device, tmp_path / "store", attributes(seeing), ALOHA, frame_hz=20.0, unfiltered=True
    ) as recorder:
        led = teleoperation.run(
            2.0,
            stop=lambda: False,
            record=lambda state, _: recorder.look(state, cameras),
            report=begin,
        )
        device.begin()
        recorded = recorder.commit(True, {"operator": "script"})
    assert not recorded.problem
    store, name = EpisodeStore.open(tmp_path / "store"), recorded.name
    assert not led.fault
    assert led.pauses <= led.late  # None, but where a busy machine makes a read late.
    assert led.targets >= 40
    assert store.verify(name) == []
    episode = store.episode(name)
    action, position = episode.arrays["action"], episode.arrays["joints/position"]
    assert episode.steps == recorded.steps
    assert 40 <= episode.steps <= 102  # While the arms were led, and not while they came to rest.
    assert np.abs(action[0] - ALOHA.home).max() < 0.01
    reachable = np.clip(led_to(), ALOHA.lower, ALOHA.upper)
    assert np.abs(action[-1] - reachable).max() < 0.006  # A tick, and an opening of half a percent.
    assert (
        np.abs(position[-1] - reachable).max() < 0.03
    )  # The filter keeps a margin from the shoulder's limit.
    assert 5 <= len(episode.arrays["rgb/overhead"]) < episode.steps
    assert episode.arrays["frame/overhead"][-1] == len(episode.arrays["rgb/overhead"]) - 1
    assert episode.attributes.success
    assert episode.attributes.extra == {
        "interventions": [],
        "lost_records": 0,
        "operator": "script",
    }


@pytest.mark.slow
def test_silent_leaders_make_the_followers_hold_until_they_answer(
    hand: LeaderEmulator, leaders: AlohaLeaders, device: DeviceProcess
) -> None:
    seen: list[tuple[float, Mode]] = []
    faults = iter([(0.3, "hang"), (1.2, "resume"), (math.inf, "")])
    due, fault = next(faults)

    def report(state: DeviceState, seconds: float) -> None:
        nonlocal due, fault
        seen.append((seconds, state.mode))
        if seconds > due:
            hand.fault("left", fault)
            due, fault = next(faults)

    led = Teleoperation(leaders, device, ALOHA).run(
        2.0, stop=lambda: False, record=nothing, report=report
    )
    assert 1 <= led.pauses <= 1 + led.late  # One, but where a busy machine makes a read late.
    assert led.counts[Reason.STARVED] > 0
    assert Mode.HOLD in [mode for seconds, mode in seen if 0.6 < seconds < 1.2]
    assert seen[-1][1] is Mode.RUN


@pytest.mark.slow
def test_nothing_moves_before_leaders_and_followers_agree(
    hand: LeaderEmulator, leaders: AlohaLeaders, device: DeviceProcess
) -> None:
    away = ALOHA.home.copy()
    away[WAIST] = 0.7
    Approach(device, ALOHA).to(away, 0.5, "a pose away")
    teleoperation = Teleoperation(leaders, device, ALOHA)
    with pytest.raises(
        ValueError, match=r"do not agree: left/waist is 0\.[67]\d rad away; allowed: 0\.3 rad\."
    ):
        teleoperation.run(1.0, stop=lambda: False, record=nothing, report=nothing)
    said: list[str] = []
    assert not teleoperation.wait(0.2, stop=lambda: False, report=said.append)
    assert len(said) == 1
    assert "Bring the leaders to the followers: left/waist is 0." in said[0]
    teleoperation.approach(0.5)
    assert teleoperation.wait(0.2, stop=lambda: False, report=said.append)
    assert abs(device.latest().arms.position[WAIST]) < 0.1
    assert teleoperation.run(0.2, stop=lambda: False, record=nothing, report=nothing).targets > 0


@pytest.mark.slow
def test_a_fault_of_the_followers_ends_the_episode(
    emulator: Emulator, leaders: AlohaLeaders, device: DeviceProcess
) -> None:
    def report(_: DeviceState, seconds: float) -> None:
        if seconds > 0.2:
            emulator.fault("right", "overload", 4)

    led: TeleopEpisode = Teleoperation(leaders, device, ALOHA).run(
        10.0, stop=lambda: False, record=nothing, report=report
    )
    assert led.seconds < 5.0
    assert "right/elbow (id 4)" in " ".join(led.fault)


@pytest.mark.slow
def test_an_incomplete_approach_is_reported(emulator: Emulator, device: DeviceProcess) -> None:
    threading.Timer(0.3, lambda: emulator.fault("left", "overload", 2)).start()
    with pytest.raises(RuntimeError, match=r"On the way to the shelf: .*left/shoulder \(id 2\)"):
        Approach(device, ALOHA).to(led_to(), 2.0, "the shelf")


@pytest.mark.slow
def test_rates_and_thresholds_are_checked(leaders: AlohaLeaders, device: DeviceProcess) -> None:
    with pytest.raises(
        ValueError, match="control_hz is 0, agree 0.3 and agree_opening 0.3; all must be above 0"
    ):
        Teleoperation(leaders, device, ALOHA, control_hz=0)


class LastKnown:
    """Leaders that report an old pose: a servo, or the port of an arm, does not answer.

    Args:
        leaders: Leaders that answer.
        reads: Number of reads until the servo answers.
        lost: Whether the port of the right arm is lost for ever.
    """

    ELBOW = 13

    def __init__(self, leaders: AlohaLeaders, *, reads: float = 0, lost: bool = False) -> None:
        self.servos = leaders.servos
        self.arms = leaders.arms
        self._leaders = leaders
        self._left = reads
        self._lost = lost

    def read(self, clock: Callable[[], float]) -> ArmState:
        state = self._leaders.read(clock)
        misses = np.zeros_like(state.servo_misses)
        misses[self.ELBOW] = self._left > 0
        self._left -= 1
        old = state.position.copy()
        if misses.any() or self._lost:
            old[WAIST] = 0.2  # Near enough to agree.
        return replace(state, position=old, servo_misses=misses, lost=np.array([False, self._lost]))


@pytest.fixture(params=["servo", "port"])
def silent(request: pytest.FixtureRequest, leaders: AlohaLeaders) -> tuple[LastKnown, str]:
    """Leaders that do not answer, and the name of the servo or port as a pattern."""
    if request.param == "servo":
        return LastKnown(leaders, reads=math.inf), r"right/elbow shadow \(id 5\)"
    return LastKnown(leaders, lost=True), "port of the arm right"


@pytest.mark.slow
def test_followers_do_not_move_to_an_old_pose_of_silent_leaders(
    silent: tuple[LastKnown, str], device: DeviceProcess
) -> None:
    leaders, name = silent
    before = device.latest().command
    teleoperation = Teleoperation(leaders, device, ALOHA)
    begun = time.monotonic()
    with pytest.raises(RobotNotReadyError, match=rf"{name} of the leaders does not answer"):
        teleoperation.approach(0.5)
    assert time.monotonic() - begun < 5.0
    assert np.array_equal(device.latest().command, before)


@pytest.mark.slow
def test_silent_leaders_agree_with_no_follower(
    silent: tuple[LastKnown, str], device: DeviceProcess
) -> None:
    leaders, name = silent
    teleoperation = Teleoperation(leaders, device, ALOHA)
    off, found = teleoperation.disagreement()
    assert off == math.inf
    assert re.match(rf"{name} of the leaders does not answer", found)
    said: list[str] = []
    assert not teleoperation.wait(0.3, stop=lambda: False, report=said.append)
    assert len(said) == 1
    assert re.search(rf"{name} of the leaders does not answer", said[0])
    with pytest.raises(ValueError, match=rf"{name} of the leaders does not answer"):
        teleoperation.run(1.0, stop=lambda: False, record=nothing, report=nothing)


@pytest.mark.slow
def test_a_missed_answer_delays_the_motion_to_the_leaders(
    leaders: AlohaLeaders, device: DeviceProcess
) -> None:
    late = Teleoperation(LastKnown(leaders, reads=4), device, ALOHA)
    assert late.approach(0.5)
    assert abs(device.latest().arms.position[WAIST]) < 0.1
    assert Teleoperation(LastKnown(leaders, reads=1), device, ALOHA).disagreement()[0] < 0.33


@pytest.mark.slow
def test_the_wait_for_silent_leaders_can_be_stopped(
    leaders: AlohaLeaders, device: DeviceProcess
) -> None:
    silent = Teleoperation(LastKnown(leaders, reads=math.inf), device, ALOHA)
    assert not silent.approach(0.5, lambda: True)


@pytest.mark.slow
def test_on_the_wire_leaders_without_an_answer_are_named(
    hand: LeaderEmulator, leaders: AlohaLeaders, device: DeviceProcess
) -> None:
    hand.fault("left", "hang")
    before = device.latest().command
    with pytest.raises(RobotNotReadyError, match=r"left/waist \(id 1\) of the leaders does not"):
        Teleoperation(leaders, device, ALOHA).approach(0.5)
    assert np.array_equal(device.latest().command, before)
