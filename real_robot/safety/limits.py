"""What the safety filter holds a robot to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import COUNT, FINITE, NOT_NEGATIVE, POSITIVE, Range
from stringline.datasets.embodiments.embodiment import Embodiment

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SafetyLimits:
    """Limits and patience of the safety filter. Arrays are (J,), in rad and openings.

    Attributes:
        lower: Smallest target.
        upper: Largest target.
        velocity: Largest change of the target per second.
        acceleration: Largest change of that per second.
        tracking: How far the target may be from the measured position.
        effort: Largest lasting effort as the driver measures it, Nm; infinite for grippers, whose
            force is limited otherwise.
        table_height: Of the table top in the base frame, metres.
        table_clearance: Smallest height of moving links over it, metres.
        arm_clearance: Smallest distance between the arms, metres.
        box: (2, 3) lowest and highest corner of the space that moving links may be in, base frame,
            metres; None: no walls.
        soft_start_s: After arming, velocity and acceleration grow from a tenth to all of their
            limits in that time.
        hold_after_misses: Reads in a row that a servo may leave unanswered before the arms hold.
        fault_after_misses: The same, before a fault.
        fault_after_rejects: Chunks in a row that may be rejected before a fault.
        hold_after_effort_s: How long an effort may be too large before the arms hold and let go; a
            fault follows after five times that, in one hold or in several.
        oldest_plan_s: A chunk that answers an older observation than that is not followed.
        oldest_action_s: The arms hold when the last action of the plan has been past for that long.
        oldest_image_s: A chunk that was planned from older images is refused, and the arms hold
            when a camera that is watched shows nothing newer.
        oldest_heartbeat_s: The arms hold when the supervisor has been silent for that long.
        hold_temperature: Degrees Celsius of a servo from which the arms hold.
        fault_temperature: From which it is a fault; servos shut down at 80.
    """

    lower: Vector
    upper: Vector
    velocity: Vector
    acceleration: Vector
    tracking: Vector
    effort: Vector
    table_height: float = 0.0
    table_clearance: float = 0.0
    arm_clearance: float = 0.0
    box: Vector | None = None
    soft_start_s: float = 2.0
    hold_after_misses: int = 3
    fault_after_misses: int = 30
    fault_after_rejects: int = 5
    hold_after_effort_s: float = 0.3
    oldest_plan_s: float = 2.0
    oldest_action_s: float = 0.2
    oldest_image_s: float = 0.15
    oldest_heartbeat_s: float = 0.5
    hold_temperature: float = 70.0
    fault_temperature: float = 78.0

    def __post_init__(self) -> None:
        """Refuses limits that limit nothing or allow nothing.

        Raises:
            ValueError: It names the limit, and what is allowed.
        """
        shapes = {
            len(values)
            for values in (
                self.lower,
                self.upper,
                self.velocity,
                self.acceleration,
                self.tracking,
                self.effort,
            )
        }
        if len(shapes) != 1:
            raise ValueError(f"Safety limits of different lengths: {sorted(shapes)}.")
        if (
            not (np.isfinite(self.lower) & np.isfinite(self.upper)).all()
            or not (self.lower < self.upper).all()
        ):
            raise ValueError("Every joint needs a finite lower limit below a finite upper one.")
        for name in ("velocity", "acceleration", "tracking", "effort"):
            if not (getattr(self, name) > 0).all():
                raise ValueError(
                    f"The limits of {name} must be positive; got {getattr(self, name).tolist()}."
                )
        if not (np.isfinite(self.velocity) & np.isfinite(self.acceleration)).all():
            raise ValueError("The limits of velocity and acceleration must be finite.")
        # What is compared with NaN is neither near nor far, late nor early: a stage with such a
        # limit would never act.
        FINITE.check(
            table_height=self.table_height,
            table_clearance=self.table_clearance,
            arm_clearance=self.arm_clearance,
        )
        NOT_NEGATIVE.check(
            soft_start_s=self.soft_start_s, hold_after_effort_s=self.hold_after_effort_s
        )
        COUNT.check(
            hold_after_misses=self.hold_after_misses, fault_after_rejects=self.fault_after_rejects
        )
        if self.fault_after_misses not in Range(least=self.hold_after_misses, whole=True):
            raise ValueError(
                f"fault_after_misses is {self.fault_after_misses}; allowed: from "
                f"hold_after_misses on."
            )
        if self.box is not None and (
            self.box.shape != (2, 3) or not (self.box[0] < self.box[1]).all()
        ):
            raise ValueError(
                f"box is {self.box.tolist()}; allowed: the lowest and the highest corner, [[x, y, "
                f"z], [x, y, z]]."
            )
        for name in ("oldest_plan_s", "oldest_action_s", "oldest_image_s", "oldest_heartbeat_s"):
            POSITIVE.check(**{name: getattr(self, name)})
        FINITE.check(
            hold_temperature=self.hold_temperature, fault_temperature=self.fault_temperature
        )
        if not self.hold_temperature <= self.fault_temperature:
            raise ValueError("hold_temperature must not be above fault_temperature.")

    @classmethod
    def of(
        cls,
        embodiment: Embodiment,
        *,
        margin_rad: float = 0.01,
        acceleration: float = 60.0,
        gripper_acceleration: float = 100.0,
        tracking_rad: float = 0.8,
        speed_share: float = 1.0,
        table_height: float = 0.0,
        table_clearance: float = 0.0,
        arm_clearance: float = 0.0,
        box: Sequence[Sequence[float]] | None = None,
        soft_start_s: float = 2.0,
        effort: Sequence[float] | None = None,
        oldest_image_s: float = 0.15,
        hold_temperature: float = 70.0,
        fault_temperature: float = 78.0,
    ) -> Self:
        """Derives limits from a body's own.

        Args:
            embodiment: Whose position, velocity and effort limits count.
            margin_rad: Kept from the hinges' position limits.
            acceleration: Of hinges, rad/s^2.
            gripper_acceleration: Of grippers, openings/s^2; they carry little.
            tracking_rad: Of hinges. Grippers close on things, so theirs is not bounded.
            speed_share: Of the body's velocity limits, above 0 and at most 1.
            table_height: See the attributes, as for the rest.
            table_clearance: Metres.
            arm_clearance: Metres.
            box: Metres.
            soft_start_s: Seconds.
            effort: Of the hinges of an arm, in their order, the same for each arm, Nm. None: the
                most that the motors of the body are said to give, which real ones never report.
            oldest_image_s: Seconds.
            hold_temperature: Degrees Celsius.
            fault_temperature: Degrees Celsius.

        Raises:
            ValueError: A value is out of range.
        """
        FINITE.check(margin_rad=margin_rad)
        POSITIVE.check(
            acceleration=acceleration,
            gripper_acceleration=gripper_acceleration,
            tracking_rad=tracking_rad,
        )
        Range(above=0, most=1).check(speed_share=speed_share)
        hinge = np.array([joint.kind == "hinge" for joint in embodiment.joints])
        return cls(
            lower=embodiment.lower + margin_rad * hinge,
            upper=embodiment.upper - margin_rad * hinge,
            velocity=embodiment.velocity_limits * speed_share,
            acceleration=np.where(hinge, acceleration, gripper_acceleration),
            tracking=np.where(hinge, tracking_rad, np.inf),
            effort=_efforts(embodiment, effort),
            table_height=table_height,
            table_clearance=table_clearance,
            arm_clearance=arm_clearance,
            box=None if box is None else np.array(box, dtype=np.float64),
            soft_start_s=soft_start_s,
            oldest_image_s=oldest_image_s,
            hold_temperature=hold_temperature,
            fault_temperature=fault_temperature,
        )


def _efforts(embodiment: Embodiment, asked: Sequence[float] | None) -> Vector:
    """Returns the largest lasting effort of each joint; infinite for grippers.

    Raises:
        ValueError: There are not as many as an arm has hinges, or one is not above 0.
    """
    efforts = np.array(
        [joint.effort if joint.kind == "hinge" else np.inf for joint in embodiment.joints]
    )
    if asked is None:
        return efforts
    for arm in embodiment.arms:
        hinges = embodiment.hinges[arm]
        if len(asked) != len(hinges):
            names = ", ".join(embodiment.joints[index].name for index in hinges)
            raise ValueError(f"effort has {len(asked)} entries; needed is one for each of {names}.")
        efforts[hinges] = asked
    if not (efforts > 0).all():
        raise ValueError(f"The limits of effort must be above 0; got {list(asked)}.")
    return efforts
