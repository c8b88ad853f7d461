"""The safety filter: the only maker of the commands that a driver accepts.

It lives in the device process, below every mailbox.

A chunk must keep all `CHUNK_RULES`; a target passes all `STAGES`, in order, in every cycle.
Whatever goes wrong ends in one of two reactions: hold, or a fault that an operator resets.
"""

import functools
import operator
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.driver_interface.safe_command import SEAL, SafeCommand
from stringline.real_robot.safety.chunk_stages import (
    Arrival,
    ChunkRule,
    finite,
    fresh_images,
    fresh_observation,
    not_from_the_future,
    of_this_episode,
    ordered,
    right_shape,
)
from stringline.real_robot.safety.keep_clear import ClearTarget, KeepClear
from stringline.real_robot.safety.limiter import MotionLimiter
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.motion_stages import MotionLimits, SoftStart
from stringline.real_robot.safety.reasons import Mode, Reason
from stringline.real_robot.safety.robot_stages import (
    AllServosAnswer,
    ControllersTakeCommands,
    CoolEnough,
    EffortInBounds,
    FaultLatch,
    FreshState,
    NoServoError,
    PortsAlive,
)
from stringline.real_robot.safety.stage_cycle import NONE, Cycle, Setting, Signs, Stage
from stringline.real_robot.safety.target_stages import (
    NOTICEABLE,
    ActionDue,
    CamerasAlive,
    FewBadChunks,
    FreshPlan,
    GoodTarget,
    InJointLimits,
    NearTheArm,
    SupervisorAlive,
)

Vector = NDArray[np.float64]

CHUNK_RULES: tuple[ChunkRule, ...] = (
    right_shape,
    finite,
    ordered,
    of_this_episode,
    not_from_the_future,
    fresh_observation,
    fresh_images,
)
STAGES: tuple[type[Stage], ...] = (
    # Is the robot in a state to move?
    PortsAlive,
    NoServoError,
    ControllersTakeCommands,
    AllServosAnswer,
    FreshState,
    EffortInBounds,
    CoolEnough,
    FewBadChunks,
    FaultLatch,
    SupervisorAlive,
    CamerasAlive,
    # Is there something to follow?
    ActionDue,
    GoodTarget,
    FreshPlan,
    # Where to, and how fast.
    InJointLimits,
    ClearTarget,
    NearTheArm,
    SoftStart,
    MotionLimits,
    KeepClear,
)


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
        amounts: What acted in the last cycle, and by how much: rad or openings of targets that were
            moved, metres that lacked, seconds, servos, reads, degrees Celsius or the number of a
            `Bar`.
        counts: Cycles in which each reason acted since `start`, and chunks that were refused.
    """

    def __init__(self, embodiment: Embodiment, limits: SafetyLimits, period_s: float) -> None:
        if len(limits.lower) != len(embodiment.joints):
            raise ValueError(
                f"{embodiment.name} has {len(embodiment.joints)} joints; the limits are for "
                f"{len(limits.lower)}."
            )
        self.limits = limits
        setting = Setting(embodiment, limits, period_s)
        self._stages = [stage(setting) for stage in STAGES]
        self._limiter = MotionLimiter(
            limits.lower, limits.upper, limits.velocity, limits.acceleration, period_s
        )
        self._period_s = period_s
        self._session = -1
        self._sequence = 0
        self._kept = NONE
        self._restart()

    def _restart(self) -> None:
        self.mode = Mode.RUN
        self.reasons = Reason(0)
        self.fault_reasons = Reason(0)
        self.amounts: dict[Reason, float] = {}
        self.counts: Counter[Reason] = Counter()
        self._elapsed_s = 0.0
        self._rejected = 0

    def start(self, state: ArmState, session: int, kept: Reason = NONE) -> None:
        """Begins at rest where the arms are measured to be, with a soft start; clears a fault, but for what is kept of it.

        Targets that were ahead of the arms, as against an obstacle, are taken back at once: that
        lets go, it does not push.

        Args:
            state: Fresh.
            session: Number that chunks of this episode bear.
            kept: Reasons of a fault that nobody has reset.
        """
        self._restart()
        if kept:
            self.mode = Mode.FAULT
            self.fault_reasons = kept
        self._kept = kept
        for stage in self._stages:
            stage.start()
        self._session = session
        self._limiter.start(state.anchor)

    def admit(
        self,
        chunk: ActionChunk,
        session: int,
        now: float,
        image_age_s: float = 0.0,
        observed_s: float | None = None,
    ) -> bool:
        """Says whether a chunk may be sampled. Several bad ones in a row are a fault.

        Args:
            chunk: As it came in.
            session: Of whoever sent it.
            now: Time, to tell plans from the future.
            image_age_s: How old the oldest image was that it was planned from; old ones are
                refused, but no fault.
            observed_s: When the observation was made that it answers; None: when its first action
                is due. An old one is refused, but no fault.
        """
        arrival = Arrival(chunk, session, self._session, now, image_age_s, observed_s)
        broken = next(
            (reason for rule in CHUNK_RULES if (reason := rule(arrival, self.limits))), Reason(0)
        )
        if broken == Reason.BAD_CHUNK:
            self.reject()
        elif broken:
            self.counts[broken] += 1
        else:
            self._rejected = 0
        return not broken

    def reject(self) -> None:
        """Counts something that was sent and is no chunk at all."""
        self._rejected += 1
        self.counts[Reason.BAD_CHUNK] += 1

    def step(
        self, target: Vector | None, state: ArmState, now: float, signs: Signs | None = None
    ) -> SafeCommand:
        """Returns the command of this cycle, for any target and any state.

        Args:
            target: (J,) wanted, or None when nothing is due.
            state: Of this cycle.
            now: Time of this cycle.
            signs: Of life; None when nobody promised any.
        """
        cycle = self._cycle(target, state, now, signs or Signs())
        for stage in self._stages:
            stage.act(cycle)
        position = self._limiter.commit(cycle.speed, cycle.waits)
        lag = 0.0 if cycle.wanted is None else float(np.abs(position - cycle.wanted).max())
        if lag > NOTICEABLE:
            cycle.note(Reason.MOTION, lag)
        self._conclude(cycle)
        return SafeCommand(position, self._sequence, SEAL)

    @property
    def at_rest(self) -> bool:
        """Whether the last command was no motion."""
        return not self._limiter.speed.any()

    def _conclude(self, cycle: Cycle) -> None:
        self.mode = Mode.FAULT if cycle.faults else Mode.HOLD if cycle.held else Mode.RUN
        self.amounts = cycle.amounts
        self.fault_reasons = cycle.faults
        self.reasons = functools.reduce(operator.or_, cycle.amounts, Reason(0))
        self.counts.update(cycle.amounts.keys())
        self._elapsed_s += self._period_s
        self._sequence += 1

    def _cycle(self, target: Vector | None, state: ArmState, now: float, signs: Signs) -> Cycle:
        rest = np.zeros(len(self.limits.lower))
        return Cycle(
            target=target,
            state=state,
            now=now,
            elapsed_s=self._elapsed_s,
            signs=signs,
            rejected=self._rejected,
            limiter=self._limiter,
            braking=rest,
            speed=rest,
            faults=self._kept,
        )
