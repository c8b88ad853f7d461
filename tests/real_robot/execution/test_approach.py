"""Slow motions stop and begin again softly at holds, with the safety filter in simulated time."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.filter_rig import PERIOD, moved, state

from stringline import ALOHA, ActionChunk, ArmState, SafetyFilter, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.execution import approach
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.safety.stage_context import Freshness
from stringline.real_robot.safety.target_stages import ChunkSampler

Vector = NDArray[np.float64]

LIMITS = SafetyLimits.of(ALOHA, speed_share=0.25, table_height=-0.1)
AWAY = moved(left__waist=0.6, right__waist=0.6, left__wrist_rotate=1.2, right__wrist_rotate=1.2)
GRIPPER = ALOHA.grippers["left"]
SECONDS = 4.0
FAR_S = 60.0


class Arms:
    """A device whose arms follow commands exactly; `sleep` of the approach runs its cycles.

    Args:
        ages: Ages of the inputs by the time since the start, s.
        blocked: Angle (rad) of the left waist at an obstacle.
        gripped: Opening of the left gripper at an object, and its speed there.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        ages: Callable[[float], Freshness],
        blocked: float = -np.inf,
        limits: SafetyLimits = LIMITS,
        gripped: tuple[float, float] = (-np.inf, 0.0),
    ) -> None:
        self.now = 100.0
        self._ages = ages
        self._blocked = blocked
        self._gripped, self._slip = gripped
        self._filter = SafetyFilter(ALOHA, limits, PERIOD)
        self._sampler = ChunkSampler()
        self._session = -1
        self.path = [AWAY]
        self.sent: list[float] = []
        self.acknowledged = 0
        self.begin()
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(approach, "time", clock)

    def _arms(self) -> ArmState:
        position = self.path[-1].copy()
        position[0] = max(position[0], self._blocked)
        effort = 100.0 * (self.path[-1] - position)
        velocity = np.zeros_like(position)
        if self._gripped > position[GRIPPER]:
            position[GRIPPER], velocity[GRIPPER] = self._gripped, self._slip
        return state(position, time=self.now, effort=effort, velocity=velocity)

    def _sleep(self, seconds: float) -> None:
        assert self.now < 100.0 + FAR_S, "The approach does not end."
        for _ in range(round(seconds / PERIOD)):
            self._cycle()

    def _cycle(self) -> None:
        now = self.now
        ages = self._ages(now - 100.0)
        action_age_s = self._sampler.overdue_s(now)
        fresh = Freshness(
            action_age_s=action_age_s,
            permission_age_s=ages.permission_age_s,
            image_ages_s=ages.image_ages_s,
        )
        command = self._filter.step(self._sampler.target(now), self._arms(), now, fresh)
        self.path.append(command.position)
        self.now += PERIOD

    def begin(self) -> None:
        self._session += 1
        self._sampler.clear()
        self._filter.start(self._arms(), self._session)

    def hold(self) -> None:
        self._sampler.clear()

    def send(self, chunk: ActionChunk) -> None:
        self.sent.append(self.now - 100.0)
        assert self._filter.admit(chunk, self._session, self.now)
        self._sampler.replace(chunk)

    def latest(self) -> SimpleNamespace:
        acted = self._filter
        return SimpleNamespace(
            arms=self._arms(),
            command=self.path[-1],
            mode=acted.mode,
            reasons=acted.reasons,
            fault_reasons=acted.fault_reasons,
            cause=None,
        )

    def move(self, stop: Callable[[], bool] = lambda: False) -> bool:
        device = cast("DeviceProcess", self)
        return Approach(device, ALOHA).to(ALOHA.home, SECONDS, "home", stop)

    @property
    def speed(self) -> float:
        """Largest speed of a joint so far, per second."""
        return float(np.abs(np.diff(self.path, axis=0)).max()) / PERIOD

    @property
    def acceleration(self) -> float:
        """Largest acceleration of a joint that speeds up so far, per second squared."""
        speeds = np.abs(np.diff(self.path, axis=0)) / PERIOD
        return float(np.diff(speeds, axis=0).max()) / PERIOD


def released(*times: tuple[float, float]) -> Callable[[float], Freshness]:
    """Hold-to-run is not held in these intervals."""
    return lambda now: Freshness(
        permission_age_s=9.0 if any(a <= now < b for a, b in times) else 0.0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "times",
    [
        [(0.0, 2.5)],
        [(0.0, 3.9)],
        [(0.0, 30.0)],
        [(1.0, 3.5)],
        [(2.0, 2.3)],
        [(1.0, 15.0), (16.0, 30.0)],
        [(2.8, 20.0)],
    ],
    ids=str,
)
def test_a_hold_does_not_make_a_slow_motion_faster(
    monkeypatch: pytest.MonkeyPatch, times: list[tuple[float, float]]
) -> None:
    free = Arms(monkeypatch, released())
    assert free.move()
    held = Arms(monkeypatch, released(*times))
    assert held.move()
    assert np.abs(held.path[-1] - ALOHA.home).max() <= 0.1
    assert held.speed <= 1.02 * free.speed
    assert held.acceleration <= 1.1 * free.acceleration
    assert held.now - 100.0 > times[-1][1]


def test_while_the_arms_hold_nothing_new_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(monkeypatch, released((1.0, 10.0)))
    assert arms.move()
    assert [sent for sent in arms.sent if 1.1 < sent < 10.0] == []


def test_a_hold_that_the_operator_does_not_cause_ends_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms = Arms(monkeypatch, lambda now: Freshness(image_ages_s=(9.0 if now > 1.0 else 0.0,)))
    with pytest.raises(RuntimeError, match=r"did not reach home: a camera delivers no new images"):
        arms.move()
    assert arms.now - 100.0 < 3 * SECONDS + 6.0


def test_a_held_motion_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(monkeypatch, released((0.0, np.inf)))
    assert not arms.move(lambda: arms.now > 120.0)
    assert np.array_equal(arms.path[-1], AWAY)


def test_a_gripper_that_rests_on_an_object_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(monkeypatch, released(), gripped=(0.4, 0.0))
    assert arms.move()
    assert arms.now - 100.0 < SECONDS + 1.0


def test_a_gripper_that_still_closes_has_not_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(monkeypatch, released(), gripped=(0.4, -0.5))
    with pytest.raises(RuntimeError, match=r"did not reach home: left/gripper is 0\.40 away"):
        arms.move()


def test_a_gripper_that_does_not_open_has_not_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(monkeypatch, released())
    pose = ALOHA.home.copy()
    pose[GRIPPER] = 1.0
    monkeypatch.setattr(arms, "_arms", lambda: state(ALOHA.home, time=arms.now))
    with pytest.raises(RuntimeError, match=r"did not reach home: left/gripper is 1\.00 away"):
        Approach(cast("DeviceProcess", arms), ALOHA).to(pose, SECONDS, "home")


def test_repeated_pressing_against_an_obstacle_stays_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = SafetyLimits.of(ALOHA, speed_share=0.25, table_height=-0.1, effort=[9.0] * 6)
    arms = Arms(monkeypatch, released(), blocked=0.3, limits=limits)
    monkeypatch.setattr(approach, "explain_fault", lambda *_: ["a joint was overloaded."])
    with pytest.raises(RuntimeError, match="On the way to home: a joint was overloaded"):
        arms.move()
    assert arms.now - 100.0 < 20.0
