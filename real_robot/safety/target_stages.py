"""From chunks to targets: rules of chunks, the sampler of targets, and stages that check targets.

A chunk must satisfy rules before it is followed; the first rule that it breaks decides.
`ChunkSampler` converts the timestamped actions of chunks to the target of the current moment. The
stages check the target and its sources, and move it inside the limits that do not depend on motion.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.ipc.heartbeat import is_age
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import Cycle, StatelessStage, Vector


@dataclass(frozen=True)
class Arrival:
    """A received chunk, not yet checked.

    Attributes:
        session: Episode number of its sender.
        wanted_session: Number of the current episode.
        now: Time of its arrival, seconds.
        image_age_s: Age of the oldest image of the observation; 0 without images, or if unknown.
        observed_s: Time of the observation; if None, the time of the first action.
    """

    chunk: ActionChunk
    session: int
    wanted_session: int
    now: float
    image_age_s: float = 0.0
    observed_s: float | None = None

    @property
    def observed(self) -> float:
        """Time of the observation, seconds."""
        return float(self.chunk.time[0]) if self.observed_s is None else self.observed_s


ChunkRule = Callable[[Arrival, SafetyLimits], Reason]


def right_shape(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that actions have an entry for each joint."""
    return Reason(0) if arrival.chunk.action.shape[1:] == limits.lower.shape else Reason.BAD_CHUNK


def finite(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that actions and times are finite."""
    good = (
        np.isfinite(arrival.chunk.action).all()
        and np.isfinite(arrival.chunk.time).all()
        and np.isfinite(arrival.observed)
    )
    return Reason(0) if good else Reason.BAD_CHUNK


def ordered(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that each action is due after the one before it."""
    times = arrival.chunk.time
    return Reason(0) if (times[1:] > times[:-1]).all() else Reason.BAD_CHUNK


def of_this_episode(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that the chunk was planned in this episode: after a reset the world is another one."""
    return Reason(0) if arrival.session == arrival.wanted_session else Reason.BAD_CHUNK


def not_from_the_future(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that the observation is not later than the local clock allows."""
    latest = max(float(arrival.chunk.time[0]), arrival.observed)
    return Reason(0) if latest <= arrival.now + limits.oldest_plan_s else Reason.BAD_CHUNK


def fresh_observation(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks the age of the observation, however long the inference took."""
    return Reason(0) if arrival.now - arrival.observed <= limits.oldest_plan_s else Reason.OLD_PLAN


def fresh_images(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks the age of the images, so that a frozen camera is not acted upon."""
    fresh = is_age(arrival.image_age_s) and arrival.image_age_s <= limits.oldest_image_s
    return Reason(0) if fresh else Reason.OLD_IMAGES


Target = NDArray[np.float64]


class ChunkSampler:
    """Interpolates linearly between the waypoints of the newest chunk.

    Past waypoints are skipped by time, not by count. Until the first waypoint of a new chunk is
    due, the previous chunk stays in force. The last waypoint is held for one interval, as a
    controller of that rate holds an action; the target is None after that.

    Attributes:
        taken: Number of chunks so far; they are numbered from 1.
        in_force: Number of the chunk of the last target, 0 without a target.
    """

    def __init__(self) -> None:
        self._chunks: list[tuple[ActionChunk, float]] = []
        self.taken = self.in_force = 0

    def replace(self, chunk: ActionChunk, observed_s: float | None = None) -> None:
        """Adds a chunk, in force from its first waypoint on.

        Args:
            chunk: Finite.
            observed_s: Time of its observation; if None, the time of its first action.
        """
        observed_s = float(chunk.time[0]) if observed_s is None else observed_s
        self._chunks = [*self._chunks[-1:], (chunk, observed_s)]
        self.taken += 1

    def _in_force(self, now: float) -> tuple[ActionChunk, float] | None:
        return next((taken for taken in reversed(self._chunks) if taken[0].time[0] <= now), None)

    def overdue_s(self, now: float) -> float:
        """Returns the time since the last waypoint of the chunk in force; 0 before it."""
        taken = self._in_force(now)
        return 0.0 if taken is None else max(0.0, now - float(taken[0].time[-1]))

    def plan_age_s(self, now: float) -> float:
        """Returns the time since the observation of the chunk in force; 0 without a chunk."""
        taken = self._in_force(now)
        return 0.0 if taken is None else now - taken[1]

    def clear(self) -> None:
        """Drops all chunks."""
        self._chunks = []

    def target(self, now: float) -> Target | None:
        """Returns the target (J,) at time `now`, or None if no chunk covers it."""
        for age, (chunk, _) in enumerate(reversed(self._chunks)):
            if chunk.time[0] <= now:
                target = _interpolate(chunk, now)
                self.in_force = 0 if target is None else self.taken - age
                return target
        self.in_force = 0
        return None


def _interpolate(chunk: ActionChunk, now: float) -> Target | None:
    after = int(np.searchsorted(chunk.time, now, side="right"))
    before = chunk.action[after - 1].astype(np.float64)
    if after == len(chunk.time):
        interval = chunk.time[-1] - chunk.time[-2] if len(chunk.time) > 1 else 0.0
        return before if now < chunk.time[-1] + interval or now == chunk.time[-1] else None
    share = (now - chunk.time[after - 1]) / (chunk.time[after] - chunk.time[after - 1])
    return np.asarray(before + share * (chunk.action[after].astype(np.float64) - before))


NOTICEABLE = 1e-3  # Smallest change of a target that is counted, rad or opening.


class FewBadChunks(StatelessStage):
    """Several rejected chunks in a row are a fault: their source cannot be trusted."""

    def act(self, cycle: Cycle) -> None:
        """Compares the number of rejected chunks with its limit."""
        if cycle.rejected >= self.limits.fault_after_rejects:
            cycle.fault(Reason.BAD_CHUNK, cycle.rejected)


class SupervisorAlive(StatelessStage):
    """The arms hold without a supervisor that could stop them."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the last heartbeat with its limit."""
        if not cycle.freshness.supervisor_age_s <= self.limits.oldest_heartbeat_s:
            cycle.hold(Reason.SUPERVISOR, cycle.freshness.supervisor_age_s)


class CamerasAlive(StatelessStage):
    """The arms hold while a camera delivers no new image: an obstacle would not be seen."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the oldest of the newest images with its limit."""
        limit = self.limits.oldest_image_s
        old = [age for age in cycle.freshness.image_ages_s if not age <= limit]
        if old:
            cycle.hold(Reason.CAMERA, max(old))


class ActionDue(StatelessStage):
    """The arms hold without an action, and when the last one was due too long ago."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the last action with its limit."""
        if cycle.held or cycle.faults:
            return
        in_time = cycle.freshness.action_age_s <= self.limits.oldest_action_s
        if cycle.target is None or not in_time:
            cycle.hold(Reason.STARVED)


class GoodTarget(StatelessStage):
    """A target is a finite vector with an entry for each joint."""

    def act(self, cycle: Cycle) -> None:
        """Checks shape and values."""
        target = cycle.wanted
        if target is not None and (
            target.shape != self.limits.lower.shape or not np.isfinite(target).all()
        ):
            cycle.hold(Reason.BAD_TARGET)


class FreshPlan(StatelessStage):
    """A plan that answers an old observation is not followed."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the observation with its limit."""
        age_s = cycle.freshness.plan_age_s
        if cycle.wanted is not None and not age_s <= self.limits.oldest_plan_s:
            cycle.hold(Reason.OLD_PLAN, age_s)


class InJointLimits(StatelessStage):
    """A target beyond a joint limit is moved inside."""

    def act(self, cycle: Cycle) -> None:
        """Clips the target."""
        _clip(cycle, self.limits.lower, self.limits.upper, Reason.POSITION)


class NearTheArm(StatelessStage):
    """A target stays near the measured position: it does not run away from a blocked arm."""

    def act(self, cycle: Cycle) -> None:
        """Clips the target."""
        measured = cycle.state.position
        tracking = self.limits.tracking
        _clip(cycle, measured - tracking, measured + tracking, Reason.TRACKING)


def _clip(cycle: Cycle, lower: Vector, upper: Vector, reason: Reason) -> None:
    if cycle.wanted is None:
        return
    inside = np.clip(cycle.wanted, lower, upper)
    moved = float(np.abs(inside - cycle.wanted).max())
    if moved > NOTICEABLE:
        cycle.note(reason, moved)
    cycle.target = np.asarray(inside, dtype=np.float64)
