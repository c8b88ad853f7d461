"""The state of one cycle of the safety filter, which its stages read and change in turn."""

import functools
import operator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.safety.limiter import MotionLimiter
from stringline.real_robot.safety.reasons import Reason

Vector = NDArray[np.float64]
NONE = Reason(0)
# Reasons for which the arms brake in place of a retreat: a person does not permit motion, or the
# process that could stop it is silent.
NO_MOTION = Reason.RELEASED | Reason.EXTERNAL_STOP | Reason.SUPERVISOR


@dataclass(frozen=True)
class Freshness:
    """Ages of the inputs of a cycle, seconds; 0 for an input that is not monitored.

    Attributes:
        action_age_s: Time since the last action of the plan in force was due.
        supervisor_age_s: Time since the last heartbeat of the owner of the device process.
        image_ages_s: Time since the capture of the newest image of each camera.
        plan_age_s: Time since the observation that the plan in force answers.
        suspended_s: Time since the last cycle in which the computer was suspended; the clock of the
            cycles stands still then.
        permission_age_s: Time since the input of hold-to-run last permitted motion.
        stop_line_age_s: Time since the line of the external stop last permitted motion.
        unsent_s: Longest time for which a command to an arm is overdue: a period after the last
            one that was sent, if the arm can be sent one.
        ahead_s: Time from the beginning of this cycle until its command is due to be sent.
    """

    action_age_s: float = 0.0
    supervisor_age_s: float = 0.0
    image_ages_s: tuple[float, ...] = ()
    plan_age_s: float = 0.0
    suspended_s: float = 0.0
    permission_age_s: float = 0.0
    stop_line_age_s: float = 0.0
    unsent_s: float = 0.0
    ahead_s: float = 0.0


class Retreat(NamedTuple):
    """The pose to which holding arms return, so that they release what they press against.

    Attributes:
        joints: (J,) bool, joints that return; the others brake.
        pose: (J,) their positions.
    """

    joints: NDArray[np.bool_]
    pose: Vector


@dataclass(eq=False)
class Cycle:
    """Inputs of a cycle and the decisions of the stages so far. Vectors are (J,).

    Attributes:
        target: Requested target, None if no action is due. Stages move it inside the limits.
        state: As measured; the first stage replaces values that cannot be used.
        before: The last state all of whose values can be used.
        now: Time of this cycle, seconds.
        followed_s: Time in which a plan was followed since the arms began to move from rest.
        rejected: Rejected chunks in a row.
        limiter: Holds the last command and its speed; only the filter advances it.
        braking: Speed of the coming period if the arms brake.
        speed: Speed of the coming period.
        scale: Share of the velocity and acceleration limits in force.
        amounts: Reasons that acted, and by how much, in the unit of each reason.
        faults: Reasons that only an operator may reset.
        waits: (J,) joints to which no command can be sent in this cycle; False: none.
        planned_retreat: Pose to which holding arms return if motion is permitted; None: they brake.
    """

    target: Vector | None
    state: ArmState
    before: ArmState
    now: float
    followed_s: float
    freshness: Freshness
    rejected: int
    limiter: MotionLimiter
    braking: Vector
    speed: Vector
    scale: float = 1.0
    amounts: dict[Reason, float] = field(default_factory=dict)
    faults: Reason = NONE
    held: bool = False
    waits: NDArray[np.bool_] | bool = False
    planned_retreat: Retreat | None = None

    @property
    def retreat(self) -> Retreat | None:
        """The retreat; None while the arms must not move at all, so that they brake."""
        acting = functools.reduce(operator.or_, self.amounts, self.faults)
        return None if acting & NO_MOTION else self.planned_retreat

    @property
    def wanted(self) -> Vector | None:
        """The target; None while the arms hold."""
        return None if self.held or self.faults else self.target

    def note(self, reason: Reason, amount: float = 1.0) -> None:
        """Records that a reason acted, and by how much."""
        self.amounts[reason] = max(amount, self.amounts.get(reason, 0.0))

    def hold(self, reason: Reason, amount: float = 1.0) -> None:
        """Makes the arms hold in this cycle."""
        self.note(reason, amount)
        self.held = True

    def fault(self, reason: Reason, amount: float = 1.0) -> None:
        """Makes the arms hold until an operator resets the reason."""
        self.note(reason, amount)
        self.faults |= reason
