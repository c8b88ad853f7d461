"""Streams of actions through the safety filter, judged by kinematics of the tests' own."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from numpy.typing import NDArray
from tests.real_robot.arm_judge import ArmJudge
from tests.real_robot.random_streams import PRESSING_STREAMS, STREAMS, Segment, play

from stringline import ActionChunk, ArmState, Embodiment, SafetyFilter, SafetyLimits
from stringline.real_robot.safety.reasons import Mode, Reason
from stringline.real_robot.safety.stage_context import Freshness
from stringline.real_robot.safety.target_stages import ChunkSampler

Vector = NDArray[np.float64]

PERIOD = 0.01
ROUNDING = 1e-9
SEARCH_M = 1e-7  # Accuracy of the searches for the distance from boxes and meshes.
UNHURRIED = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
SERVOS = 9  # Of each arm.
# Number of drawn poses, and of those that are pressed for each space and at least so deep in it.
DRAWN, EACH, DEEP_M = 4000, 40, 0.01
STARTS_M = 0.005  # Room around an arm that begins near to something.


@dataclass(frozen=True, eq=False)
class Case:
    """Arms, their limits, and their cell as plain values.

    Attributes:
        trouble: Probability of each kind of fault in a cycle.
        presses: Whether streams hold targets that are too near to something.
    """

    body: Embodiment
    limits: SafetyLimits
    cell: Mapping[str, Any]
    trouble: float = 0.003
    presses: bool = False

    @cached_property
    def judge(self) -> ArmJudge:
        """The judge of their paths."""
        return ArmJudge(self.body, self.limits, self.cell)

    @cached_property
    def too_near(self) -> Vector | None:
        """Targets (N, J) too near to the table, walls, the other arm, themselves or obstacles."""
        if not self.presses:
            return None
        lower, upper = self.body.lower, self.body.upper
        poses = np.random.default_rng(0).uniform(lower, upper, (DRAWN, len(lower)))
        inside = self.judge.spare(poses) < -DEEP_M
        found = []
        for space in inside.T:
            order = np.argsort(inside.sum(axis=1) + DRAWN * ~space, kind="stable")
            found.append(poses[order[space[order]][:EACH]])
        return np.concatenate(found)

    @cached_property
    def starts(self) -> Vector:
        """Poses (N, J) at which streams begin: home, and others just before what is too near."""
        home = self.body.home
        found = [home]
        for pose in self.too_near if self.too_near is not None else ():
            way = home + np.linspace(1.0, 0.0, 21)[:, None] * (pose - home)
            clear = self.judge.spare(way).min(axis=1) > STARTS_M
            found.append(way[np.argmax(clear)] if clear.any() else home)
        return np.stack(found)

    def at(self, cartesian_speed: float | None) -> Self:
        """Returns the case with another largest speed of grippers and links, m/s."""
        return replace(self, limits=replace(self.limits, cartesian_speed=cartesian_speed))


@dataclass
class Worst:
    """The largest shares of the limits, the number of actions, and cycles by reason."""

    case: Case
    actions: int = 0
    gripper: float = 0.0
    velocity: float = 0.0
    acceleration: float = 0.0
    beyond: float = -np.inf
    closer_m: float = 0.0
    counts: Counter[Reason] = field(default_factory=Counter)

    def take(self, path: Vector) -> None:
        """Adds a path (T, J) that began at rest; its first entry was not an action."""
        limits = self.case.limits
        self.actions += len(path) - 1
        outside = np.maximum(limits.lower - path, path - limits.upper)
        self.beyond = max(self.beyond, float(outside.max()))
        self.closer_m = max(self.closer_m, self.case.judge.closer(path))
        if len(path) == 1:
            return
        speed = np.abs(np.diff(path, axis=0)) / PERIOD
        change = np.abs(np.diff(np.concatenate([path[:1], path]), n=2, axis=0)) / PERIOD**2
        self.velocity = max(self.velocity, float((speed / limits.velocity).max()))
        self.acceleration = max(self.acceleration, float((change / limits.acceleration).max()))
        if limits.cartesian_speed is not None:
            fastest = self.case.judge.fastest(path, PERIOD)
            self.gripper = max(self.gripper, fastest / limits.cartesian_speed)

    def check(self) -> None:
        """Asserts that all shares are within the limits."""
        shares = self.velocity, self.acceleration, self.gripper
        assert np.isfinite([*shares, self.beyond]).all()
        assert self.beyond <= ROUNDING
        assert self.closer_m <= SEARCH_M
        assert max(shares) <= 1 + 1e-6

    def __str__(self) -> str:
        """Returns the figures in words."""
        acted = ", ".join(f"{reason.name} {count}" for reason, count in self.counts.items())
        return (
            f"{self.actions} actions, no violation; worst share of the limits: velocity "
            f"{self.velocity:.9f}, acceleration {self.acceleration:.9f}, gripper and links "
            f"{self.gripper:.9f}; beyond joint limits: {max(self.beyond, 0.0):.1e} (rounding); "
            f"nearer than allowed: {1e6 * self.closer_m:.3f} micrometres; cycles by reason: {acted}"
        )


class FilterSink:
    """The filter with arms that lag, get stuck, are overloaded or report faults at times."""

    def __init__(self, case: Case, number: int) -> None:
        self._body, self._limits, self._trouble = case.body, case.limits, case.trouble
        self.filter, self._sampler = SafetyFilter(case.body, case.limits, PERIOD), ChunkSampler()
        self._random = np.random.default_rng(number)
        self._now, self._session, self._measured = 0.0, 0, case.body.home.copy()
        if len(case.starts) > 1 and self._random.random() < 0.5:
            self._measured = self._random.choice(case.starts)
        self._strained_until, self._strained = 0.0, np.zeros(len(case.body.joints), np.bool_)
        self.paths: list[list[Vector]] = []
        self.counts: Counter[Reason] = Counter()
        self.restart()

    @property
    def now(self) -> float:
        return self._now

    def restart(self) -> None:
        self._session += 1
        self._sampler.clear()
        self.counts += self.filter.counts
        self.filter.start(self._state(), self._session)
        begins = self.filter.position.copy()
        revolute = np.array([joint.kind == "revolute" for joint in self._body.joints])
        # Grippers keep their goals, and so what they hold.
        assert np.array_equal(begins[revolute], self._measured[revolute])
        self.paths.append([begins])

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
                np.clip(self.paths[-1][-1], self._limits.lower, self._limits.upper) - self._measured
            )
        self._now += PERIOD
        if self.filter.mode is Mode.FAULT and self._random.random() < 0.1:
            self.restart()

    def _state(self) -> ArmState:
        rare, joints = self._random.random(4) < self._trouble, len(self._body.joints)
        if rare[1]:
            self._strained_until, self._strained = (
                self._now + self._random.uniform(0.0, 1.0),
                self._random.random(joints) < 0.2,
            )
        arms = len(self._body.arms)
        return ArmState(
            self._now - 0.1 * rare[0],
            self._measured,
            np.zeros(joints),
            np.where(self._strained & (self._now < self._strained_until), 1e3, np.zeros(joints)),
            np.full(SERVOS * arms, 0x20 * rare[2], np.uint8),
            np.full(SERVOS * arms, 4 * rare[3], np.int32),
            np.zeros(arms, np.bool_),
        )


def follow(case: Case, stream: list[Segment], worst: Worst | None = None) -> None:
    """Sends a stream through the filter; asserts that all it returns is within the limits."""
    worst = worst or Worst(case)
    sink = FilterSink(case, stream[0][1])
    play(stream, sink, case.body, too_near=case.too_near)
    for path in sink.paths:
        worst.take(np.array(path))
    worst.counts += sink.counts + sink.filter.counts
    worst.check()


def follow_many(case: Case, part: int, actions: int, examples: int = 400) -> Worst:
    """Follows random streams with so many actions, others in each part."""
    worst, batch = Worst(case), 0
    while worst.actions < actions:

        @seed(1000 * part + batch)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=UNHURRIED,
        )
        @given(PRESSING_STREAMS if case.presses else STREAMS)
        def follow_all(stream: list[Segment]) -> None:
            if worst.actions < actions:
                follow(case, stream, worst)

        follow_all()
        batch += 1
    return worst
