"""The safety filter: the only maker of the commands that a driver accepts. It lives in the device process, below every mailbox.

Stages, in order: a chunk must be finite, ordered in time and of this episode; a target is moved inside the joint limits and
kept near the measured position; its motion is limited against the last command that was sent; the pose in which the arms would
come to rest must stay off the table and apart. Whatever goes wrong ends in one of two reactions: hold, or a fault that an
operator resets.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunk import ActionChunk
from stringline.real_robot.clearance import Clearance
from stringline.real_robot.command import SEAL, SafeCommand
from stringline.real_robot.drivers.driver import ArmState
from stringline.real_robot.limiter import MotionLimiter
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.reasons import REASONS, Mode, Reason

Vector = NDArray[np.float64]

_SOFT_START_SHARE = 0.1
_NOTICEABLE = 1e-3  # rad or opening by which a target must be changed to be counted.
_FAULT_EFFORT_FACTOR = 5
# Shares of the way from braking to what is wanted, tried in this order when an arm gets too near to something.
_SHARES = (1.0, 0.5, 0.25, 0.0)


class SafetyFilter:
    """Turns targets into commands.

    Args:
        embodiment: The body that is moved.
        limits: What it is held to.
        period_s: Time between two commands.

    Attributes:
        mode: The reaction in force.
        reasons: What acted in the last cycle.
        fault_reasons: What led to the fault; none when there is none.
        counts: Cycles in which each reason acted since `start`.
    """

    def __init__(self, embodiment: Embodiment, limits: SafetyLimits, period_s: float) -> None:
        if len(limits.lower) != len(embodiment.joints):
            raise ValueError(f"{embodiment.name} has {len(embodiment.joints)} joints; the limits are for {len(limits.lower)}.")
        self.limits = limits
        self._clearance = Clearance(embodiment, limits.table_height)
        self._arm_of_joint = np.array([embodiment.arms.index(joint.arm) for joint in embodiment.joints])
        self._limiter = MotionLimiter(limits.lower, limits.upper, limits.velocity, limits.acceleration, period_s)
        self._period_s = period_s
        self._session, self._sequence = -1, 0
        self._restart()

    def _restart(self) -> None:
        self.mode, self.reasons, self.fault_reasons = Mode.RUN, Reason(0), Reason(0)
        self.counts: Counter[Reason] = Counter()
        self._elapsed_s, self._rejected, self._plan_time = 0.0, 0, -np.inf
        self._strained_s = np.zeros(len(self.limits.lower))

    def start(self, state: ArmState, session: int) -> None:
        """Begins at rest where the arms are measured to be, with a soft start; clears a fault.

        Targets that were ahead of the arms, as against an obstacle, are taken back at once: that lets go, it does not push.

        Args:
            state: Fresh.
            session: Number that chunks of this episode bear.
        """
        self._restart()
        self._session = session
        self._limiter.start(state.position)

    def admit(self, chunk: ActionChunk, session: int, now: float) -> bool:
        """Says whether a chunk may be sampled. Several bad ones in a row are a fault.

        Args:
            chunk: As it came in.
            session: Of whoever sent it.
            now: Time, to tell plans from the future.
        """
        good = (
            session == self._session
            and chunk.action.shape[1:] == self.limits.lower.shape
            and bool(np.isfinite(chunk.action).all())
            and bool(np.isfinite(chunk.time).all())
            and bool((np.diff(chunk.time) > 0).all())
            and chunk.time[0] <= now + self.limits.oldest_plan_s
        )
        if good:
            self._rejected, self._plan_time = 0, float(chunk.time[0])
        else:
            self.reject()
        return good

    def reject(self) -> None:
        """Counts something that was sent and is no chunk at all."""
        self._rejected += 1
        self.counts[Reason.BAD_CHUNK] += 1

    def step(self, target: Vector | None, state: ArmState, now: float) -> SafeCommand:
        """Returns the command of this cycle, for any target and any state.

        Args:
            target: (J,) wanted, or None when nothing is due.
            state: Of this cycle.
            now: Time of this cycle.
        """
        self.reasons = Reason(0)
        self._judge(state)
        wanted = self._wanted(target, state, now)
        scale = self._scale()
        speed = self._limiter.braking(scale)
        if wanted is None:
            self._limiter.forget_target()
        else:
            speed = self._clear(speed, self._limiter.propose(wanted, scale), scale)
        position = self._limiter.commit(speed)
        if wanted is not None and (np.abs(position - wanted) > _NOTICEABLE).any():
            self.reasons |= Reason.MOTION
        self.counts.update(reason for reason in REASONS if reason & self.reasons)
        self._elapsed_s += self._period_s
        self._sequence += 1
        return SafeCommand(position, self._sequence, SEAL)

    def _scale(self) -> float:
        if self._elapsed_s >= self.limits.soft_start_s:
            return 1.0
        return _SOFT_START_SHARE + (1 - _SOFT_START_SHARE) * self._elapsed_s / self.limits.soft_start_s

    def _judge(self, state: ArmState) -> None:
        """Decides about hold and fault from what the robot reports."""
        limits, fault = self.limits, Reason(0)
        if state.lost.any():
            fault |= Reason.LINK_LOST
        if state.servo_error.any():
            fault |= Reason.SERVO_ERROR
        if self._rejected >= limits.fault_after_rejects:
            fault |= Reason.BAD_CHUNK
        misses = int(state.servo_misses.max())
        if misses >= limits.hold_after_misses:
            self.reasons |= Reason.SERVO_SILENT
            fault |= Reason.SERVO_SILENT if misses >= limits.fault_after_misses else Reason(0)
        self._strained_s = np.where(np.abs(state.effort) > limits.effort, self._strained_s + self._period_s, 0.0)
        strained_s = float(self._strained_s.max())
        if strained_s > limits.hold_after_effort_s:
            self.reasons |= Reason.EFFORT
            fault |= Reason.EFFORT if strained_s > _FAULT_EFFORT_FACTOR * limits.hold_after_effort_s else Reason(0)
        self.reasons |= fault
        if self.mode is Mode.FAULT or fault:
            self.mode, self.fault_reasons = Mode.FAULT, self.fault_reasons | fault
        else:
            self.mode = Mode.HOLD if self.reasons else Mode.RUN

    def _wanted(self, target: Vector | None, state: ArmState, now: float) -> Vector | None:
        """Returns the target (J,) inside all static limits, or None when the arms are to hold."""
        if self.mode is not Mode.RUN:
            return None
        if target is None:
            self.reasons |= Reason.STARVED
        elif target.shape != self.limits.lower.shape or not np.isfinite(target).all():
            self.reasons |= Reason.BAD_TARGET
        elif now - self._plan_time > self.limits.oldest_plan_s:
            self.reasons |= Reason.OLD_PLAN
        else:
            inside = np.clip(target, self.limits.lower, self.limits.upper)
            if (np.abs(inside - target) > _NOTICEABLE).any():
                self.reasons |= Reason.POSITION
            near = np.clip(inside, state.position - self.limits.tracking, state.position + self.limits.tracking)
            if (np.abs(near - inside) > _NOTICEABLE).any():
                self.reasons |= Reason.TRACKING
            return np.asarray(near)
        self.mode = Mode.HOLD
        return None

    def _clear(self, braking: Vector, wanted: Vector, scale: float) -> Vector:
        """Returns the speed nearest to the wanted one that keeps the arms off the table and apart.

        Every mixture of two allowed speeds is allowed. Arms that are too near already may move, but not nearer than braking
        brings them.
        """
        level = np.zeros(len(self._clearance.arms), dtype=np.int64)
        floor: tuple[Vector, float] | None = None
        while True:
            share = np.array(_SHARES)[level][self._arm_of_joint]
            speed = braking + share * (wanted - braking)
            if not share.any():
                return np.asarray(speed)
            heights, between = self._room(speed, scale)
            low, near = heights < self.limits.table_clearance, between < self.limits.arm_clearance
            if not low.any() and not near:
                return np.asarray(speed)
            if floor is None:
                floor = self._room(braking, scale)
            low &= heights < floor[0] - 1e-9
            near = near and between < floor[1] - 1e-9
            if not low.any() and not near:
                return np.asarray(speed)
            self.reasons |= (Reason.TABLE if low.any() else Reason(0)) | (Reason.OTHER_ARM if near else Reason(0))
            blocked = low | near
            if (level[blocked] == len(_SHARES) - 1).all():
                return np.asarray(np.where(blocked[self._arm_of_joint], braking, speed))
            level[blocked] = np.minimum(level[blocked] + 1, len(_SHARES) - 1)

    def _room(self, speed: Vector, scale: float) -> tuple[Vector, float]:
        """Returns the least clearances of the next pose and of the pose at rest after it."""
        next_pose, rest_pose = self._limiter.after(speed, scale)
        (next_heights, next_between), (rest_heights, rest_between) = map(self._clearance.measure, (next_pose, rest_pose))
        return np.minimum(next_heights, rest_heights), min(next_between, rest_between)
