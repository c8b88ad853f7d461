"""The safety filter: the only source of the commands that a driver accepts.

It runs in the device process, behind every mailbox. A chunk must satisfy all `CHUNK_RULES`; in
every cycle a target passes all `STAGES`, in order. A violation ends in one of two reactions: a
hold, or a fault that only an operator resets.
"""

import functools
import operator
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.driver_interface.driver import (
    SEAL,
    ArmState,
    RobotNotReadyError,
    SafeCommand,
)
from stringline.real_robot.safety.keep_clear import ClearTarget, KeepClear
from stringline.real_robot.safety.limiter import MotionLimiter
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.motion_stages import (
    CartesianSpeed,
    CommandsSent,
    MotionLimits,
    RestAfterGap,
    SoftStart,
)
from stringline.real_robot.safety.reasons import FollowingError, Mode, Reason
from stringline.real_robot.safety.robot_stages import (
    AllServosAnswer,
    ControllersTakeCommands,
    CoolEnough,
    EffortInBounds,
    FaultLatch,
    FreshState,
    HeldToRun,
    NoServoError,
    PortsAlive,
    SoundState,
    StateCheck,
    StopLineClosed,
)
from stringline.real_robot.safety.stage_context import NONE, Cycle, Freshness, Stage, StageContext
from stringline.real_robot.safety.target_stages import (
    NOTICEABLE,
    ActionDue,
    Arrival,
    CamerasAlive,
    ChunkRule,
    FewBadChunks,
    FreshPlan,
    GoodTarget,
    InJointLimits,
    NearTheArm,
    SupervisorAlive,
    finite,
    fresh_images,
    fresh_observation,
    not_from_the_future,
    of_this_episode,
    ordered,
    right_shape,
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
    SoundState,
    PortsAlive,
    NoServoError,
    ControllersTakeCommands,
    RestAfterGap,
    CommandsSent,
    AllServosAnswer,
    FreshState,
    EffortInBounds,
    CoolEnough,
    FewBadChunks,
    StopLineClosed,
    FaultLatch,
    HeldToRun,
    SupervisorAlive,
    CamerasAlive,
    # Is there a target to follow?
    ActionDue,
    GoodTarget,
    FreshPlan,
    # Where to, and how fast?
    InJointLimits,
    ClearTarget,
    NearTheArm,
    SoftStart,
    MotionLimits,
    KeepClear,
    CartesianSpeed,
)


class SafetyFilter:
    """Converts targets to commands.

    Args:
        embodiment: The arms, with J joints.
        limits: Limits of their motion, and time-outs.
        period_s: Time between two commands.

    Attributes:
        mode: The reaction in force.
        reasons: Reasons that acted in the last cycle.
        fault_reasons: Reasons of the fault; empty without a fault.
        amounts: Reasons that acted in the last cycle, and by how much: rad or openings by which
            targets were moved, missing metres, seconds, servos, missed answers, degrees Celsius or
            the number of an interlock.
        counts: Cycles in which each reason acted since `start`, and rejected chunks.
        following: Distance of commands to faster targets since `start`.

    Raises:
        ValueError: The limits are for another number of joints.
    """

    def __init__(self, embodiment: Embodiment, limits: SafetyLimits, period_s: float) -> None:
        if len(limits.lower) != len(embodiment.joints):
            raise ValueError(
                f"{embodiment.name} has {len(embodiment.joints)} joints; the limits are for "
                f"{len(limits.lower)}."
            )
        self.limits = limits
        context = StageContext(embodiment, limits, period_s)
        self._stages = [stage(context) for stage in STAGES]
        self._arm_of_joint = context.arm_of_joint
        self._limiter = MotionLimiter(
            limits.lower, limits.upper, limits.velocity, limits.acceleration, period_s
        )
        self._revolute = np.array([joint.kind == "revolute" for joint in embodiment.joints])
        self._state_check = StateCheck(embodiment)
        self._measured: ArmState | None = None
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
        self.following = FollowingError()
        self._followed_s = self._starved_s = 0.0
        self._rejected = 0

    def start(
        self, state: ArmState, session: int, kept: Reason = NONE, *, new_world: bool = False
    ) -> None:
        """Starts an episode at rest from the measured pose, with a soft start.

        Targets ahead of the arms, as against an obstacle, return to them at once: that releases
        the obstacle and does not push. Grippers keep their goals, and so what they hold.

        Args:
            state: Just measured.
            session: Number of the episode, which its chunks bear.
            kept: Fault reasons that no operator has reset; all others are reset.
            new_world: Whether nothing is left of what grippers held, as in a new simulated world.

        Raises:
            RobotNotReadyError: The first state of all has values that are no numbers.
        """
        self._restart()
        if problems := self._state_check.problems(state):
            if self._measured is None:
                raise RobotNotReadyError([f"The arms cannot be measured: {', '.join(problems)}."])
            kept |= Reason.BAD_STATE
        self._measured = state = self.repaired(state)
        if kept:
            self.mode = Mode.FAULT
            self.fault_reasons = kept
        self._kept = kept
        for stage in self._stages:
            stage.start()
        self._session = session
        self._limiter.start(self._beginning(state, new_world=new_world))
        self._before = self._limiter.position

    def _beginning(self, state: ArmState, *, new_world: bool) -> Vector:
        """Returns the position (J,) at which the commands of an episode begin."""
        place = state.anchor.copy()
        if not new_world and len(state.gripper_goals):
            place[~self._revolute] = state.gripper_goals
        elif not new_world and self._sequence and not len(state.commanded):
            place[~self._revolute] = self._limiter.position[~self._revolute]
        return place

    def admit(
        self,
        chunk: ActionChunk,
        session: int,
        now: float,
        image_age_s: float = 0.0,
        observed_s: float | None = None,
    ) -> bool:
        """Returns whether a chunk may be sampled. Several invalid chunks in a row are a fault.

        Args:
            chunk: As received.
            session: Episode number of its sender.
            now: Time of its arrival.
            image_age_s: Age of the oldest image of its observation. A chunk from old images is
                refused, but is not a fault.
            observed_s: Time of its observation; if None, the time of its first action. A chunk from
                an old observation is refused, but is not a fault.
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
        """Counts an invalid chunk."""
        self._rejected += 1
        self.counts[Reason.BAD_CHUNK] += 1

    def step(
        self,
        target: Vector | None,
        state: ArmState,
        now: float,
        freshness: Freshness | None = None,
    ) -> SafeCommand:
        """Returns the command of this cycle, for any target and any state.

        Args:
            target: (J,) requested, or None if no action is due.
            state: Measured in this cycle.
            now: Time of this cycle.
            freshness: Ages of the inputs; if None, nothing is monitored.
        """
        rest = np.zeros(len(self.limits.lower))
        assert self._measured is not None, "It steps within an episode."
        cycle = Cycle(
            target=target,
            state=state,
            before=self._measured,
            now=now,
            followed_s=self._followed_s,
            freshness=freshness or Freshness(),
            rejected=self._rejected,
            limiter=self._limiter,
            braking=rest,
            speed=rest,
            faults=self._kept,
        )
        for stage in self._stages:
            stage.act(cycle)
        self._measured = cycle.state
        self._before = self._limiter.position
        position = self._limiter.commit(cycle.speed, cycle.scale, cycle.waits)
        if cycle.wanted is not None:
            self._note_lag(cycle, np.abs(position - cycle.wanted))
        self._conclude(cycle)
        return SafeCommand(position, self._sequence, SEAL)

    def withdraw(
        self, delay_s: float, reason: Reason = Reason.GAP, arms: NDArray[np.bool_] | None = None
    ) -> Vector:
        """Takes back the command of this cycle, which was not sent.

        The next command starts from rest at the one before. The cycle counts as a hold.

        Args:
            delay_s: By how much it was late, or the time without commands.
            reason: `Reason.GAP`: it was made too late; `Reason.UNSENT`: the driver did not send it.
            arms: (A,) arms whose command was not sent; if None, all.

        Returns:
            (J,) the last command that was sent to each joint.
        """
        joints = np.ones(len(self.limits.lower), dtype=np.bool_)
        if arms is not None:
            joints = arms[self._arm_of_joint]
        self._limiter.restart(joints, self._before)
        self.mode = max(self.mode, Mode.HOLD)
        if self.at_rest:
            self._followed_s = 0.0
        self.amounts[reason] = max(delay_s, self.amounts.get(reason, 0.0))
        if reason not in self.reasons:
            self.counts[reason] += 1
        self.reasons |= reason
        return self._limiter.position

    def repaired(self, state: ArmState) -> ArmState:
        """Returns a state in which the last known values replace those that are no numbers."""
        before = self._measured
        return state if before is None else self._state_check.repaired(state, before)

    def unsound(self, state: ArmState, now: float) -> list[str]:
        """Returns a phrase for each value of a state that cannot be used at a time."""
        return self._state_check.problems(state, now)

    def brake(self) -> SafeCommand:
        """Returns the next command of braking, along the path that was checked with the last one.

        It needs no state, for a robot that can no longer be measured or filtered.
        """
        self.mode = max(self.mode, Mode.HOLD)
        self._sequence += 1
        return SafeCommand(self._limiter.commit(self._limiter.braking), self._sequence, SEAL)

    @property
    def position(self) -> Vector:
        """(J,) the last command, or where the commands of the episode begin."""
        return self._limiter.position

    @property
    def at_rest(self) -> bool:
        """Whether the last command was no motion."""
        return not self._limiter.speed.any()

    def _note_lag(self, cycle: Cycle, lag: Vector) -> None:
        """Notes the distances (J,) of the command to the target."""
        largest = float(lag.max())
        if largest > NOTICEABLE:
            cycle.note(Reason.MOTION, largest)
            revolute = float(lag[self._revolute].max(initial=0.0))
            self.following += FollowingError(revolute, revolute)

    def _conclude(self, cycle: Cycle) -> None:
        self.mode = Mode.FAULT if cycle.faults else Mode.HOLD if cycle.held else Mode.RUN
        self.amounts = cycle.amounts
        self.fault_reasons = cycle.faults
        self.reasons = functools.reduce(operator.or_, cycle.amounts, Reason(0))
        self.counts.update(cycle.amounts.keys())
        self._time_soft_start(cycle)
        self._sequence += 1

    def _time_soft_start(self, cycle: Cycle) -> None:
        """Counts the time in which a plan was followed; it begins anew after a stop by a hold.

        A policy that stops for each plan lets the arms wait for a moment; that is not a hold.
        """
        if cycle.wanted is not None:
            self._followed_s += self._period_s
            self._starved_s = 0.0
            return
        self._starved_s += self._period_s
        waits = self.reasons == Reason.STARVED and self._starved_s <= self.limits.oldest_plan_s
        if self.at_rest and not waits:
            self._followed_s = 0.0
