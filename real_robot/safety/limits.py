"""The limits to which the safety filter holds a robot, the limits file, and limits of KUKA arms.

`SafetyLimits` has the limits and time-outs. A limits file has measured and chosen values in YAML,
beside the configuration; `merged_limits` says which of both is in force. The KUKA embodiments have
names by their number of arms, and limits below those of their drivers.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import (
    COUNT,
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    Range,
    unknown_name,
)
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.datasets.files.limits import read_yaml
from stringline.real_robot.driver_interface.interlocks import TRACKING_ERROR_RAD
from stringline.real_robot.safety.cell import NO_OBSTACLES, Cell, cell_of

Vector = NDArray[np.float64]

# ISO 10218-1: the reduced speed, m/s.
REDUCED_SPEED = 0.25
# Faster arms do not exist here: a larger number is in another unit, such as mm/s.
_FASTEST = 3.0

AGES = (
    "oldest_plan_s",
    "oldest_action_s",
    "oldest_image_s",
    "oldest_heartbeat_s",
    "longest_gap_s",
    "oldest_permission_s",
    "oldest_stop_line_s",
)

CLEARANCES = ("table_clearance", "arm_clearance", "self_clearance", "cell_clearance")
# Larger numbers are in another unit, such as millimetres, degrees, or milliseconds.
_ACCELERATION = Range(above=0, most=500)
_TRACKING_RAD = Range(above=0, most=3.2)
_MARGIN_RAD = Range(least=0, most=0.5)
_EFFORT_NM = Range(above=0, most=500)
_WALL_M = Range(least=-5, most=5)
_AGE_S = Range(above=0, most=10)
_TEMPERATURE = Range(least=20, most=120)
_HEIGHT_M = Range(least=-2, most=2)
_CLEARANCE_M = Range(least=0, most=0.5)


class CommonLimits(TypedDict, total=False):
    """Limits of `SafetyLimits` that a configuration sets as they are."""

    cartesian_speed: float | None
    table_height: float
    table_clearance: float
    arm_clearance: float
    self_clearance: float
    cell_clearance: float
    soft_start_s: float
    oldest_image_s: float
    hold_temperature: float
    fault_temperature: float


@dataclass(frozen=True, eq=False)
class SafetyLimits:
    """Limits and time-outs of the safety filter. Arrays are (J,), in rad and openings.

    Attributes:
        lower: Smallest target.
        upper: Largest target.
        velocity: Largest change of the target per second.
        acceleration: Largest change of the velocity per second.
        tracking: Largest distance of the target from the measured position.
        effort: Largest lasting effort as measured by the driver, Nm; infinite for grippers, whose
            force is limited elsewhere.
        cartesian_speed: Largest speed of gripper, elbow, links and tools (`LinkPoints`), m/s;
            if None, no limit, for emulated arms.
        table_height: Height of the table top in the base frame, metres.
        table_clearance: Smallest height of moving links above the table, metres.
        arm_clearance: Smallest distance between the arms, metres.
        self_clearance: Smallest distance between capsules of one arm, metres.
        cell_clearance: Smallest distance from obstacles of the cell, metres.
        cell: Tools, wrist cameras and obstacles.
        box: (2, 3) lowest and highest corner of the space for moving links, base frame, metres;
            if None, no walls.
        soft_start_s: Time in which velocity and acceleration grow from a tenth to their limits when
            motion begins; only the time in which a plan is followed counts. After a hold that has
            brought the arms to rest it begins anew.
        hold_after_misses: Missed answers of a servo in a row before the arms hold.
        fault_after_misses: The same, before a fault.
        fault_after_rejects: Rejected chunks in a row before a fault.
        hold_after_effort_s: Duration of an overload before the arms hold and, where motion is
            permitted, retreat; a fault follows after five times that, in one hold or in several.
        oldest_plan_s: Largest age of the observation of a chunk that is followed.
        oldest_action_s: Time after the last action of the plan at which the arms hold.
        oldest_image_s: Largest age of the images of a chunk, and of the newest image of each
            monitored camera, beyond which the arms hold.
        oldest_heartbeat_s: Time without a heartbeat of the supervisor after which the arms hold.
        longest_gap_s: Time without a cycle of the device process, or without a command that was
            sent to an arm, beyond which the next cycle is a fault; a shorter gap is a hold.
        oldest_permission_s: Time without a permission of hold-to-run after which the arms hold.
        oldest_stop_line_s: Time without a permission of the external stop that is a fault.
        hold_temperature: Temperature of a servo at which the arms hold, degrees Celsius.
        fault_temperature: Temperature that is a fault, degrees Celsius; servos shut down at 80.

    Raises:
        ValueError: A limit is out of its range.
    """

    lower: Vector
    upper: Vector
    velocity: Vector
    acceleration: Vector
    tracking: Vector
    effort: Vector
    cartesian_speed: float | None = REDUCED_SPEED
    table_height: float = 0.0
    table_clearance: float = 0.0
    arm_clearance: float = 0.0
    self_clearance: float = 0.0
    cell_clearance: float = 0.0
    cell: Cell = NO_OBSTACLES
    box: Vector | None = None
    soft_start_s: float = 2.0
    hold_after_misses: int = 3
    fault_after_misses: int = 30
    fault_after_rejects: int = 5
    hold_after_effort_s: float = 0.3
    oldest_plan_s: float = 2.0
    oldest_action_s: float = 0.2
    oldest_image_s: float = 0.15
    oldest_heartbeat_s: float = 0.18
    longest_gap_s: float = 0.3
    oldest_permission_s: float = 0.2
    oldest_stop_line_s: float = 0.1
    hold_temperature: float = 70.0
    fault_temperature: float = 78.0

    def __post_init__(self) -> None:
        """Checks the ranges of all limits."""
        self._check_joints()
        if self.cartesian_speed is not None and self.cartesian_speed not in Range(
            above=0, most=_FASTEST
        ):
            raise ValueError(
                f"cartesian_speed is {self.cartesian_speed!r}; allowed: above 0, up to "
                f"{_FASTEST:g} (m/s)."
            )
        # A comparison with NaN is always false: a stage with such a limit would never act.
        _HEIGHT_M.check(table_height=self.table_height)
        for name in CLEARANCES:
            _CLEARANCE_M.check(**{name: getattr(self, name)})
        _TEMPERATURE.check(
            hold_temperature=self.hold_temperature, fault_temperature=self.fault_temperature
        )
        NOT_NEGATIVE.check(
            soft_start_s=self.soft_start_s, hold_after_effort_s=self.hold_after_effort_s
        )
        COUNT.check(
            hold_after_misses=self.hold_after_misses, fault_after_rejects=self.fault_after_rejects
        )
        for name in AGES:
            _AGE_S.check(**{name: getattr(self, name)})
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
        for wall in () if self.box is None else self.box.flat:
            _WALL_M.check(box=float(wall))
        if not self.hold_temperature <= self.fault_temperature:
            raise ValueError("hold_temperature must not be above fault_temperature.")

    def _check_joints(self) -> None:
        moving = ("velocity", "acceleration", "tracking", "effort")
        lengths = {len(getattr(self, name)) for name in ("lower", "upper", *moving)}
        if len(lengths) != 1:
            raise ValueError(f"Safety limits of different lengths: {sorted(lengths)}.")
        bounded = (np.isfinite(self.lower) & np.isfinite(self.upper)).all()
        if not bounded or not (self.lower < self.upper).all():
            raise ValueError("Every joint needs a finite lower limit below a finite upper one.")
        for name in moving:
            if not (getattr(self, name) > 0).all():
                raise ValueError(
                    f"The limits of {name} must be positive; got {getattr(self, name).tolist()}."
                )
        if not (np.isfinite(self.velocity) & np.isfinite(self.acceleration)).all():
            raise ValueError("The limits of velocity and acceleration must be finite.")

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
        box: Sequence[Sequence[float]] | None = None,
        effort: Sequence[float] | None = None,
        cell: Mapping[str, Any] | None = None,
        **more: Unpack[CommonLimits],
    ) -> Self:
        """Derives limits from those of an embodiment.

        Args:
            embodiment: Source of the position, velocity and effort limits.
            margin_rad: Distance kept from the position limits of revolute joints.
            acceleration: Limit of revolute joints, rad/s^2.
            gripper_acceleration: Limit of grippers, openings/s^2; they carry little.
            tracking_rad: Limit of revolute joints. That of grippers is infinite, since they close
                on objects.
            speed_share: Share of the velocity limits, above 0 and at most 1.
            box: (2, 3), see the attributes.
            effort: Limits of the revolute joints of an arm, in their order, the same for each arm,
                Nm. If None, the nominal limits of the motors, which real servos never report.
            cell: Tools, wrist cameras and obstacles, see `cell_of`; if None, nominal cameras only.
            **more: See the attributes.

        Raises:
            ValueError: A value is out of range.
        """
        _MARGIN_RAD.check(margin_rad=margin_rad)
        _ACCELERATION.check(acceleration=acceleration, gripper_acceleration=gripper_acceleration)
        _TRACKING_RAD.check(tracking_rad=tracking_rad)
        Range(above=0, most=1).check(speed_share=speed_share)
        revolute = np.array([joint.kind == "revolute" for joint in embodiment.joints])
        return cls(
            lower=embodiment.lower + margin_rad * revolute,
            upper=embodiment.upper - margin_rad * revolute,
            velocity=embodiment.velocity_limits * speed_share,
            acceleration=np.where(revolute, acceleration, gripper_acceleration),
            tracking=np.where(revolute, tracking_rad, np.inf),
            effort=_efforts(embodiment, effort),
            box=None if box is None else np.array(box, dtype=np.float64),
            cell=cell_of(embodiment, {} if cell is None else cell),
            **more,
        )


def _efforts(embodiment: Embodiment, requested: Sequence[float] | None) -> Vector:
    """Returns the largest lasting effort of each joint; infinite for grippers."""
    efforts = np.array(
        [joint.effort if joint.kind == "revolute" else np.inf for joint in embodiment.joints]
    )
    if requested is None:
        return efforts
    for arm in embodiment.arms:
        revolute = embodiment.revolute_joints[arm]
        if len(requested) != len(revolute):
            names = ", ".join(embodiment.joints[index].name for index in revolute)
            raise ValueError(
                f"effort has {len(requested)} entries; needed is one for each of {names}."
            )
        efforts[revolute] = requested
    for limit in requested:
        _EFFORT_NM.check(effort=limit)
    return efforts


# It must be measured, so it has no default in a file.
MEASURED = "table_height"
SPEED = "cartesian_speed"
SHARE = "speed_share"
# Of real arms without a configuration of their own.
DEFAULT_LIMITS: Mapping[str, Any] = {SPEED: REDUCED_SPEED, SHARE: 1.0}
# Configuration and file each limit these: a user who chose a tighter one gets the tighter one.
_LOOSER_ABOVE = frozenset(
    {
        *(SPEED, SHARE, "acceleration", "gripper_acceleration", "tracking_rad", "effort"),
        *("hold_after_misses", "fault_after_misses", "fault_after_rejects", "hold_after_effort_s"),
        *("hold_temperature", "fault_temperature", *AGES),
    }
)
_LOOSER_BELOW = frozenset({"margin_rad", "soft_start_s", MEASURED, *CLEARANCES})
TIGHTENED = _LOOSER_ABOVE | _LOOSER_BELOW
BUILT_IN: Mapping[str, Any] = {
    **{field.name: field.default for field in fields(SafetyLimits) if field.name in TIGHTENED},
    **{
        name: parameter.default
        for name, parameter in inspect.signature(SafetyLimits.of).parameters.items()
        if name in TIGHTENED
    },
}


def read_limits(path: Path) -> dict[str, Any]:
    """Returns the arguments of `SafetyLimits.of` in a file.

    Raises:
        ValueError: The file cannot be read, is empty, has an unknown name or lacks the height of
            the table.
    """
    found = read_yaml("The limits file", path)
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f"The limits file {path} must be a list of `name: value`, such as `table_height: "
            f"0.012`."
        )
    known = {**inspect.signature(SafetyLimits.of).parameters, **CommonLimits.__annotations__}
    names = [name for name in known if name not in ("embodiment", "more")]
    for name in found:
        if name not in names:
            raise unknown_name("limit", str(name), names)
    if MEASURED not in found:
        raise ValueError(
            f"The limits file {path} lacks {MEASURED}. Measure the height of the table top in the "
            f"frame between the bases of the arms, in metres."
        )
    return {str(name): value for name, value in _with_paths(found, path.parent).items()}


def _with_paths(found: Any, folder: Path) -> Any:
    """Returns the content with the files of meshes relative to the folder of the limits file."""
    if not isinstance(found, dict):
        return found
    return {
        name: str(folder / value)
        if name == "file" and isinstance(value, str)
        else _with_paths(value, folder)
        for name, value in found.items()
    }


def merged_limits(
    settings: Mapping[str, Any],
    file: Path | None,
    *,
    emulated: bool = False,
    defaults: Mapping[str, Any] = DEFAULT_LIMITS,
) -> dict[str, Any]:
    """Returns the limits of a configuration, overridden by those of the file.

    A limit of the configuration that is tighter than that of the file is in force if the user chose
    it: an acceleration that is lower, or a clearance that is larger. One of `defaults` may come
    from the shipped configuration instead, so only a tighter one counts as chosen. Emulated arms
    have no default speed.

    Raises:
        ValueError: The file is invalid; a speed of the configuration is out of range; or real arms
            have no limit of Cartesian speed, or a limit that the configuration loosens, which only
            the file may.
    """
    found = read_limits(file) if file else {}
    chosen = _chosen_limits(settings, None if emulated else defaults)
    tightened = {name: limit for name, limit in chosen.items() if _is_chosen(name, limit, found)}
    merged = {**settings, **found, **tightened}
    if not emulated:
        _check_real(settings, found, file, defaults)
    return merged


def describe_speeds(limits: Mapping[str, Any]) -> str:
    """Returns the speeds in force of merged limits in words."""
    speed = limits.get(SPEED, REDUCED_SPEED)
    what = "not limited" if speed is None else f"{speed:g} m/s"
    return f"{SPEED} {what}, {SHARE} {limits.get(SHARE, 1.0):g}"


def _chosen_limits(
    settings: Mapping[str, Any], defaults: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the limits of a configuration that are tighter than their defaults.

    Without defaults, as of emulated arms, all speeds are chosen, and nothing else is.
    """
    for name, allowed in ((SPEED, POSITIVE), (SHARE, Range(above=0, most=1))):
        if settings.get(name) is not None:
            allowed.check(**{f"robot.limits.{name}": settings[name]})
    if defaults is None:
        given = ((name, settings.get(name)) for name in (SPEED, SHARE))
        return {name: speed for name, speed in given if speed is not None}
    base = {**BUILT_IN, **defaults}
    return {
        name: limit
        for name, limit in settings.items()
        if name in TIGHTENED and _is_chosen(name, limit, base)
    }


def _is_chosen(name: str, limit: Any, others: Mapping[str, Any]) -> bool:
    """Returns whether a limit is tighter than another one; values that are invalid stay."""
    if name not in others:
        return True
    return _is_looser(name, others[name], limit)


def _is_looser(name: str, limit: Any, base: Any) -> bool:
    """Returns whether a limit allows more than another one, in any of its numbers."""
    if limit is None or base is None:
        return limit is None and base is not None and name in (SPEED, "effort")
    some = limit if isinstance(limit, Sequence) else [limit]
    others = base if isinstance(base, Sequence) else [base]
    pairs = zip(some, others, strict=False)
    numbers = [(one, other) for one, other in pairs if one in FINITE and other in FINITE]
    sign = 1 if name in _LOOSER_ABOVE else -1
    return any(sign * one > sign * other for one, other in numbers)


def _check_real(
    settings: Mapping[str, Any],
    found: Mapping[str, Any],
    file: Path | None,
    defaults: Mapping[str, Any],
) -> None:
    """Checks that real arms have a limit of Cartesian speed, and that only the file loosens any."""
    base = {**BUILT_IN, **defaults, SPEED: REDUCED_SPEED}
    for name, limit in settings.items():
        if name not in TIGHTENED or not _is_looser(name, limit, base[name]):
            continue
        bound, verb = ("up to", "raises") if name in _LOOSER_ABOVE else ("from", "lowers")
        onwards = "" if name in _LOOSER_ABOVE else " on"
        unit = " (m/s)" if name == SPEED else ""
        raise ValueError(
            f"robot.limits.{name} is {_in_yaml(limit)}; allowed for real arms: {bound} "
            f"{_in_yaml(base[name])}{onwards}{unit}. Only the limits file {verb} it."
        )
    if SPEED in found and found[SPEED] is None:
        raise ValueError(f"{SPEED} is null in {file}; real arms need a limit (m/s).")


def _in_yaml(value: object) -> str:
    return "null" if value is None else repr(value)


KUKA_EMBODIMENTS: Mapping[str, Embodiment] = {"one": IIWA14, "two": IIWA14_BIMANUAL}
# Largest distance of targets from a blocked arm. Emulated arms lag by 0.06 s: 0.1 rad at 1.7 rad/s.
_KUKA_TRACKING_RAD = 0.2


def kuka_embodiment(arms: str) -> Embodiment:
    """Returns the embodiment with "one" or "two" arms.

    Raises:
        ValueError: The number is unknown.
    """
    if arms not in KUKA_EMBODIMENTS:
        raise unknown_name("number of KUKA arms", arms, KUKA_EMBODIMENTS)
    return KUKA_EMBODIMENTS[arms]


def ports_in_order(embodiment: Embodiment, ports: Mapping[str, str]) -> dict[str, str]:
    """Returns ports in the order of the arms of an embodiment, which is that of commands.

    Raises:
        ValueError: The ports are not those of its arms.
    """
    if set(ports) != set(embodiment.arms):
        found = ", ".join(ports) or "none"
        needed = ", ".join(embodiment.arms)
        raise ValueError(
            f"The configuration has ports for the arms {found}; {embodiment.name} has the arms "
            f"{needed}: robot.arms, robot.ports."
        )
    return {arm: ports[arm] for arm in embodiment.arms}


def kuka_limits(embodiment: Embodiment, **settings: Any) -> SafetyLimits:
    """Returns limits whose tracking is below the distance at which drivers report a tracking error.

    So the commands of a blocked arm wait for it, and no tracking error is reported. The settings
    are arguments of `SafetyLimits.of`; `tracking_rad` is 0.2 by default.

    Raises:
        ValueError: A value is out of range; `tracking_rad` must be below 0.3.
    """
    tracking_rad = settings.setdefault("tracking_rad", _KUKA_TRACKING_RAD)
    Range(above=0, below=TRACKING_ERROR_RAD).check(tracking_rad=tracking_rad)
    return SafetyLimits.of(embodiment, **settings)
