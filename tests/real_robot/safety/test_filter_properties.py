"""The safety filter keeps position, velocity and acceleration limits for any input."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.real_robot.filter_rig import fastest
from tests.real_robot.random_streams import SEGMENT, STREAMS, Segment, play

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.filter import SafetyFilter
from stringline.real_robot.safety.limits import REDUCED_SPEED, SafetyLimits
from stringline.real_robot.safety.reasons import Mode
from stringline.real_robot.safety.stage_cycle import Freshness
from stringline.real_robot.safety.target_sampler import ChunkSampler

if TYPE_CHECKING:
    from tests.real_robot.conftest import Rig

Vector = NDArray[np.float64]

PERIOD = 0.01
POST = {"shape": "capsule", "position": [-0.22, 0.2, 0.3], "radius": 0.05, "length": 0.6}
LIMITS = SafetyLimits.of(
    ALOHA,
    cartesian_speed=None,
    soft_start_s=0.3,
    table_clearance=0.003,
    arm_clearance=0.005,
    self_clearance=0.005,
    cell_clearance=0.005,
    cell={"obstacles": {"post": POST}},
)
SPEEDS: dict[str, float | None] = {"any speed": None, "reduced speed": REDUCED_SPEED}
"""Largest speed of grippers and links, m/s."""
CLEARANCE = Clearance.of(ALOHA, LIMITS)
ROUNDING = 1e-9
UNHURRIED = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
PART = 100_000  # Actions of each of the ten parts of the long test.


@dataclass
class Worst:
    """The largest shares of the limits, and the number of actions.

    `cartesian_speed` is the limit of grippers and links, m/s; None: any speed.
    """

    cartesian_speed: float | None = None
    actions: int = 0
    gripper: float = 0.0
    velocity: float = 0.0
    acceleration: float = 0.0
    beyond: float = -np.inf
    closer_m: float = 0.0

    def take(self, path: Vector) -> None:
        """Adds a path (T, J) that began at rest; its first entry was not an action."""
        at_rest_before = np.concatenate([path[:1], path])
        self.actions += len(path) - 1
        self.beyond = max(
            self.beyond, float((LIMITS.lower - path).max()), float((path - LIMITS.upper).max())
        )
        self.closer_m = max(self.closer_m, closer(path))
        if len(path) > 1:
            speed, change = (
                np.abs(np.diff(path, axis=0)),
                np.abs(np.diff(at_rest_before, n=2, axis=0)),
            )
            self.velocity = max(self.velocity, float((speed / (LIMITS.velocity * PERIOD)).max()))
            self.acceleration = max(
                self.acceleration, float((change / (LIMITS.acceleration * PERIOD**2)).max())
            )
            if self.cartesian_speed is not None:
                share = fastest(ALOHA, path).max() / self.cartesian_speed
                self.gripper = max(self.gripper, float(share))

    def check(self) -> None:
        """Asserts that all shares are within the limits."""
        shares = self.velocity, self.acceleration, self.gripper
        assert np.isfinite([*shares, self.beyond]).all()
        assert self.beyond <= ROUNDING
        assert self.closer_m <= ROUNDING
        assert max(shares) <= 1 + 1e-6


def closer(path: Vector) -> float:
    """Returns the largest missing clearance on a path (T, J), from anything, in metres.

    An arm may begin too near, as at a measured pose, but it must not come closer then.
    """
    room = CLEARANCE.measure(path)
    kept = (
        (room.heights, LIMITS.table_clearance),
        (room.between, LIMITS.arm_clearance),
        (room.own, LIMITS.self_clearance),
        (room.obstacles, LIMITS.cell_clearance),
    )
    missing = 0.0
    for distances, clearance in kept:
        spare = distances - clearance
        missing = max(missing, float((np.minimum(spare[0], 0.0) - spare).max()))
    return missing


class FilterSink:
    """The filter with arms that lag, get stuck, are overloaded or report faults at times."""

    def __init__(self, number: int, cartesian_speed: float | None) -> None:
        limits = replace(LIMITS, cartesian_speed=cartesian_speed)
        self.filter, self._sampler = SafetyFilter(ALOHA, limits, PERIOD), ChunkSampler()
        self._random = np.random.default_rng(number)
        self._now, self._session, self._measured = 0.0, 0, ALOHA.home.copy()
        self._strained_until, self._strained = 0.0, np.zeros(14, np.bool_)
        self.paths: list[list[Vector]] = []
        self.restart()

    @property
    def now(self) -> float:
        return self._now

    def restart(self) -> None:
        self._session += 1
        self._sampler.clear()
        self.filter.start(self._state(), self._session)
        self.paths.append([self._measured])

    def send(self, chunk: ActionChunk, *, old: bool) -> None:
        age_s = 0.0 if self._random.random() < 0.9 else np.nan
        if self.filter.admit(chunk, self._session - old, self._now, age_s):
            self._sampler.replace(chunk)

    def cycle(self, target: Vector | None) -> None:
        freshness = Freshness(*np.where(self._random.random(2) < 0.01, 9.0, 0.0))
        wanted = self._sampler.target(self._now) if target is None else target
        self.paths[-1].append(
            self.filter.step(wanted, self._state(), self._now, freshness).position
        )
        if self._random.random() < 0.95:
            self._measured = self._measured + 0.4 * (
                np.clip(self.paths[-1][-1], LIMITS.lower, LIMITS.upper) - self._measured
            )
        self._now += PERIOD
        if self.filter.mode is Mode.FAULT and self._random.random() < 0.1:
            self.restart()

    def _state(self) -> ArmState:
        rare = self._random.random(4) < 0.003
        if rare[1]:
            self._strained_until, self._strained = (
                self._now + self._random.uniform(0.0, 1.0),
                self._random.random(14) < 0.2,
            )
        return ArmState(
            self._now - 0.1 * rare[0],
            self._measured,
            np.zeros(14),
            np.where(self._strained & (self._now < self._strained_until), 1e3, np.zeros(14)),
            np.full(18, 0x20 * rare[2], np.uint8),
            np.full(18, 4 * rare[3], np.int32),
            np.zeros(2, np.bool_),
        )


def follow(stream: list[Segment], worst: Worst) -> None:
    sink = FilterSink(stream[0][1], worst.cartesian_speed)
    play(stream, sink)
    for path in sink.paths:
        worst.take(np.array(path))
    worst.check()


@pytest.mark.parametrize("speed", SPEEDS)
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(stream=STREAMS)
def test_no_stream_leads_out_of_the_limits(speed: str, stream: list[Segment]) -> None:
    follow(stream, Worst(SPEEDS[speed]))


def test_limits_that_grow_between_the_check_and_the_braking_bring_nothing_nearer() -> None:
    follow(
        [
            ("bang", 34538, 4, -1.682235804329714e183),
            ("old session", 1388033858, 36, 0.72),
            ("targets", 1509, 7, -1.1754943508222875e-38),
            ("targets", 132468031, 32, 3.0081960877634228e16),
            ("old session", 170165, 33, 2.1144600365485464e16),
            ("nothing", 5649142, 34, -5.844489960047986e-87),
            ("restart", 6344, 7, 0.0),
            ("targets", 273, 22, 0.032),
            ("odd chunks", 552, 39, 3.0042686690639704e16),
        ],
        Worst(),
    )


@pytest.mark.stress
@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("part", range(10))
def test_no_million_actions_lead_out_of_the_limits(
    part: int, speed: str, record_property: Callable[[str, object], None]
) -> None:
    worst, batch = Worst(SPEEDS[speed]), 0
    while worst.actions < PART:

        @seed(1000 * part + batch)
        @settings(max_examples=400, deadline=None, database=None, suppress_health_check=UNHURRIED)
        @given(STREAMS)
        def follow_all(stream: list[Segment]) -> None:
            if worst.actions < PART:
                follow(stream, worst)

        follow_all()
        batch += 1
    record_property(
        "says",
        f"part {part}: {worst.actions} actions, no violation; worst share of the limits: velocity "
        f"{worst.velocity:.9f}, acceleration {worst.acceleration:.9f}, gripper and links at "
        f"{speed} {worst.gripper:.9f}; beyond joint limits: "
        f"{max(worst.beyond, 0.0):.1e} (rounding); nearer than allowed to table, other arm, itself "
        f"or obstacle: {1e6 * worst.closer_m:.2f} micrometres",
    )


class WireSink:
    """Arms on the far side of a pseudo-terminal, in lock-step."""

    def __init__(self, rig: "Rig") -> None:
        self.rig = rig

    @property
    def now(self) -> float:
        return self.rig.now

    def restart(self) -> None:
        """Waits, as an operator would, until the arms rest, and begins again."""
        self.rig.loop.brake()
        for _ in range(40):
            self.rig.cycle()
        self.rig.begin()

    def send(self, chunk: ActionChunk, *, old: bool) -> None:
        if chunk.action.shape[1] == 14:
            self.rig.send(chunk, session=self.rig.session - old)

    def cycle(self, target: Vector | None) -> None:
        assert np.isfinite(self.rig.cycle().command).all()


def over_the_wire(rig: "Rig", streams: int) -> None:
    """Sends streams of chunks over the wire and compares the received goals with the limits."""
    sink = WireSink(rig)

    @settings(
        max_examples=streams,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=UNHURRIED,
    )
    @given(st.lists(SEGMENT, min_size=1, max_size=5))
    def send_all(stream: list[Segment]) -> None:
        sink.restart()
        play(stream, sink, chunks_only=True)

    send_all()
    rig.assert_within_limits()
    for path in rig.goals():
        assert np.ptp(path, axis=0).min() > 0.1  # The arms did move.


def test_no_stream_of_chunks_gets_out_of_the_limits_on_the_wire(rig: "Rig") -> None:
    over_the_wire(rig, 12)


@pytest.mark.stress
def test_no_stream_of_chunks_however_many_gets_out_of_the_limits_on_the_wire(
    make_rig: "Callable[..., Rig]", record_property: Callable[[str, object], None]
) -> None:
    rig = make_rig(LIMITS)
    over_the_wire(rig, 150)
    record_property(
        "says", f"{sum(len(path) for path in rig.goals())} goals arrived at the arms, no violation"
    )
