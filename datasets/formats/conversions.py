"""Conversion of foreign numbers to the units of the contract: grippers, rotations, dimensions.

Our opening of a gripper is 0 (closed) to 1 (open), linear in the gap of the pads. For ALOHA
alone four conventions are in use, two of them within one file (`observations/qpos` by the
distance of the fingers, `action` by the angle of the leader's servo). No file contains its
convention, so users must name it.

Foreign rotations are vectors, quaternions (x y z w) or angles; here they become matrices.

A state or action is a vector of dimensions, each with its kind, unit, frame and scale.

Recorders often store the pose of the gripper beside the joints. It is no input, but a kinematic
model with another frame, another base or another order of the joints differs from it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any, get_args

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import (
    SERIES,
    ActionDimension,
    ActionKind,
    ActionMode,
    Array,
)
from stringline.datasets.embodiments.aloha import (
    FINGER_CLOSED,
    FINGER_OPEN,
    GRIPPER_SERVOS,
    GripperServo,
)
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.embodiments.gym_aloha import normalised_of_opening
from stringline.datasets.embodiments.transforms import rotation_about
from stringline.datasets.formats.checks import LARGEST_ANGLE, LARGEST_POSITION_M, check_values
from stringline.datasets.formats.foreign import ForeignDataError, ImportedEpisode

# Openings outside of these limits are not overshoot; the convention must be another one.
LOWEST = -0.5
HIGHEST = 1.5


@dataclass(frozen=True)
class GripperConvention:
    """A convention for the opening of a gripper; the conversions take and return arrays (...)."""

    name: str
    meaning: str
    to_opening: Callable[[Array], Array]
    from_opening: Callable[[Array], Array]

    def rate_to_opening(self, values: Array, rates: Array) -> Array:
        """Returns speeds (...) in openings/s from foreign values (...) and their speeds."""
        return _rate(self.to_opening, values, rates)

    def rate_from_opening(self, openings: Array, rates: Array) -> Array:
        """Returns foreign speeds (...) from openings (...) and their speeds."""
        return _rate(self.from_opening, openings, rates)


def _rate(convert: Callable[[Array], Array], values: Array, rates: Array) -> Array:
    """Returns the rates (...) of converted values by central differences over 0.1 ms."""
    step = 1e-4
    return np.asarray(
        (convert(values + step * rates) - convert(values - step * rates)) / (2 * step)
    )


def linear(name: str, meaning: str, closed: float, opened: float) -> GripperConvention:
    """Returns a convention that is linear in the gap, with foreign values at openings 0 and 1."""
    if closed == opened:
        raise ValueError(
            f"A gripper convention has closed={closed} and opened={opened}; they must differ."
        )
    span = opened - closed
    return GripperConvention(
        name,
        meaning,
        lambda values: (values - closed) / span,
        lambda opening: np.asarray(closed + span * opening),
    )


def _angle(name: str, servo: GripperServo) -> GripperConvention:
    return GripperConvention(
        f"{name}_rad", f"angle of the servo {name} in rad", servo.opening, servo.angle
    )


def _share(name: str, servo: GripperServo) -> GripperConvention:
    travel = servo.opened - servo.closed
    return GripperConvention(
        f"{name}_share",
        f"0 (closed) to 1 (open), linear in the angle of the servo {name}",
        lambda values: servo.opening(servo.closed + travel * values),
        lambda opening: (servo.angle(opening) - servo.closed) / travel,
    )


GRIPPER_CONVENTIONS: dict[str, GripperConvention] = {
    convention.name: convention
    for convention in (
        linear(
            "opening",
            "0 (closed) to 1 (open), linear in the gap: ACT in simulation, states of real ALOHA",
            0.0,
            1.0,
        ),
        linear("closing", "0 (open) to 1 (closed), linear in the gap", 1.0, 0.0),
        linear("signed_opening", "-1 (closed) to 1 (open), linear in the gap", -1.0, 1.0),
        linear(
            "signed_closing",
            "-1 (open) to 1 (closed), linear in the gap: actions of robosuite",
            1.0,
            -1.0,
        ),
        linear("finger_m", "travel of one finger of ALOHA 2 in m", FINGER_CLOSED, FINGER_OPEN),
        linear("act_finger_m", "travel of one finger of ALOHA 1 in m, in ACT", 0.01844, 0.05800),
        linear(
            "gym_aloha",
            "0 to 1 as gym-aloha counts, about 0.10 (closed) to 0.97 (open)",
            *normalised_of_opening((0.0, 1.0)).tolist(),
        ),
        linear("finger_control_m", "control signal of one finger of ALOHA 2 in m", 0.002, 0.037),
        *(_angle(name, servo) for name, servo in GRIPPER_SERVOS.items()),
        *(_share(name, servo) for name, servo in GRIPPER_SERVOS.items()),
    )
}


def gripper_convention(
    chosen: str | Mapping[str, float] | None, option: str, advice: str = ""
) -> GripperConvention:
    """Returns the convention that a user chose: one of `GRIPPER_CONVENTIONS`, or a linear one.

    A linear one is given by its foreign values `closed` and `opened`. Messages contain `option`,
    and that of a missing one the sentence `advice`.
    """
    if isinstance(chosen, Mapping):
        if set(chosen) != {"closed", "opened"}:
            raise ValueError(
                f"{option} is {dict(chosen)}; allowed: a name, or "
                "{closed: NUMBER, opened: NUMBER}."
            )
        name = f"{chosen['closed']:g}..{chosen['opened']:g}"
        return linear(name, "given by its ends", chosen["closed"], chosen["opened"])
    if chosen in GRIPPER_CONVENTIONS:
        return GRIPPER_CONVENTIONS[chosen]
    meanings = "; ".join(
        f"{name} ({convention.meaning})" for name, convention in GRIPPER_CONVENTIONS.items()
    )
    allowed = (
        f"Allowed: {meanings}; or the ends of a linear one, {{closed: NUMBER, opened: NUMBER}}."
    )
    if not chosen:
        missing = f"{option} is missing, and the data does not contain it."
        raise ValueError(" ".join(filter(None, (missing, advice, allowed))))
    raise ValueError(f"There is no {option} {chosen!r}. {allowed}")


UNIT_TOLERANCE = 1e-2


def pose_of_vectors(position: Array, rotation: Array) -> Array:
    """Returns poses (T, 4, 4) float32 of positions (T, 3), m, and rotation vectors (T, 3), rad."""
    angle = np.linalg.norm(rotation, axis=-1)
    axis = rotation / np.where(angle > 0, angle, 1.0)[:, None]
    return _assembled(position, rotation_about(axis, angle))


def pose_of_quaternions(key: str, position: Array, xyzw: Array) -> Array:
    """Returns poses (T, 4, 4) float32 of positions (T, 3) in m and quaternions (T, 4), x y z w."""
    length = np.linalg.norm(xyzw, axis=-1)
    wrong = np.abs(length - 1) > UNIT_TOLERANCE
    if wrong.any():
        frame = int(np.argmax(wrong))
        raise ForeignDataError(
            f"{key} at frame {frame} has length {length[frame]:.6g}; a quaternion has length 1."
        )
    x, y, z, w = (xyzw / length[:, None]).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return _assembled(position, np.moveaxis(np.array(rows), -1, 0))


def pose_of_angles(rows: Array) -> Array:
    """Returns poses (T, 4, 4) float32 of x, y, z, m, and roll, pitch, yaw, rad, (T, 6).

    The angles are about fixed axes, first x, then y, then z: R = Rz(yaw) Ry(pitch) Rx(roll).
    """
    roll, pitch, yaw = (
        rotation_about(axis, angle) for axis, angle in zip(np.eye(3), rows[:, 3:].T, strict=True)
    )
    return _assembled(rows[:, :3], yaw @ pitch @ roll)


def _assembled(position: Array, rotation: Array) -> Array:
    poses = np.tile(np.eye(4), (len(position), 1, 1))
    poses[:, :3, :3] = rotation
    poses[:, :3, 3] = position
    return poses.astype(np.float32)


@dataclass(frozen=True)
class Dimension:
    """One dimension of a foreign state or action.

    Attributes:
        mode: Absolute, or relative to the measured state.
        unit: Unit in the contract, after scaling.
        frame: `joint`, or the reference frame of a Cartesian dimension.
        scale: Contract's value per foreign value; grippers have a convention instead.
    """

    name: str
    arm: str
    kind: ActionKind = "joint"
    mode: ActionMode = "absolute"
    unit: str = "rad"
    frame: str = "joint"
    scale: float = 1.0
    gripper: GripperConvention | None = None

    def __post_init__(self) -> None:
        if (self.kind == "gripper") != (self.gripper is not None):
            raise ValueError(
                f"{self.name!r} has the kind {self.kind!r}; grippers, and only these, need a "
                "convention."
            )

    def imported(self, foreign: Array) -> Array:
        """Converts foreign values (T,) to the contract's."""
        return foreign * self.scale if self.gripper is None else self.gripper.to_opening(foreign)

    def imported_rates(self, foreign: Array, rates: Array) -> Array:
        """Converts speeds (T,) at foreign values (T,)."""
        if self.gripper is None:
            return rates * self.scale
        return self.gripper.rate_to_opening(foreign, rates)

    def exported(self, values: Array) -> Array:
        """Converts values (T,) of the contract to foreign ones."""
        return values / self.scale if self.gripper is None else self.gripper.from_opening(values)

    def exported_rates(self, values: Array, rates: Array) -> Array:
        """Converts speeds (T,) at values (T,) of the contract to foreign ones."""
        if self.gripper is None:
            return rates / self.scale
        return self.gripper.rate_from_opening(values, rates)

    def impossible(self, values: Array) -> tuple[Array, str]:
        """Returns which values (T,) of the contract are impossible, and the message for them."""
        if self.gripper is not None:
            # NaN, where no servo angle fits, is impossible, too.
            possible = (values >= LOWEST) & (values <= HIGHEST)
            return ~possible, f"impossible for a gripper that counts as {self.gripper.name!r}"
        if self.kind == "joint":
            unit = "rad" if self.scale == 1 else "deg"
            why = f"impossible for a joint in {unit}. Is the unit another one?"
            return np.abs(values) > LARGEST_ANGLE, why
        if self.kind == "position" and self.unit == "m":
            why = f"allowed: at most {LARGEST_POSITION_M:g} m. Are these millimetres?"
            return np.abs(values) > LARGEST_POSITION_M, why
        return np.zeros(values.shape, bool), ""

    def described(self) -> ActionDimension:
        """Returns the dimension of the contract."""
        return ActionDimension(self.name, self.arm, self.kind, self.mode, self.unit, self.frame)


def gripper_dimension(name: str, arm: str, convention: GripperConvention) -> Dimension:
    """Returns the dimension of a gripper."""
    return Dimension(name, arm, "gripper", unit="opening", gripper=convention)


def pose_dimensions(
    arm: str,
    frame: str,
    gripper: GripperConvention,
    mode: ActionMode = "absolute",
    metres: float = 1.0,
    radians: float = 1.0,
) -> tuple[Dimension, ...]:
    """Returns the 7 dimensions of a gripper: position and rotation vector, scaled, and opening."""
    return (
        *(Dimension(f"{arm}/{a}", arm, "position", mode, "m", frame, metres) for a in "xyz"),
        *(
            Dimension(f"{arm}/rotation_{a}", arm, "rotation", mode, "rad", frame, radians)
            for a in "xyz"
        ),
        gripper_dimension(f"{arm}/gripper", arm, gripper),
    )


@dataclass(frozen=True)
class NumberVector:
    """A foreign state or action of D numbers, with conversions from and to the contract's units.

    Attributes:
        columns: Places of the D numbers in a longer or differently ordered foreign vector, for
            imports; if None, the vector has these numbers in this order.
    """

    dimensions: tuple[Dimension, ...]
    columns: tuple[int, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D numbers."""
        return tuple(dimension.name for dimension in self.dimensions)

    def imported(self, key: str, foreign: Array) -> Array:
        """Converts foreign values (T, D) to the units of the contract, float32.

        Impossible values raise `ForeignDataError` with the name `key`.
        """
        foreign = self._mine(foreign)
        values = np.empty(foreign.shape, np.float32)
        for column, dimension in enumerate(self.dimensions):
            with np.errstate(invalid="ignore"):
                found = dimension.imported(foreign[:, column])
            wrong, why = dimension.impossible(found)
            column_values = foreign[:, column : column + 1]
            check_values(key, wrong[:, None], column_values, (dimension.name,), why)
            values[:, column] = found
        return values

    def imported_rates(self, foreign: Array, rates: Array) -> Array:
        """Converts speeds (T, D) at foreign values (T, D) to the units of the contract, float32."""
        foreign = self._mine(foreign)
        rates = self._mine(rates)
        return _stacked(
            dimension.imported_rates(foreign[:, place], rates[:, place])
            for place, dimension in enumerate(self.dimensions)
        )

    def exported(self, values: Array) -> Array:
        """Converts values (T, D) of the contract to foreign units, float32."""
        return _stacked(
            dimension.exported(values[:, place]) for place, dimension in enumerate(self.dimensions)
        )

    def exported_rates(self, values: Array, rates: Array) -> Array:
        """Converts speeds (T, D) at values (T, D) of the contract to foreign units, float32."""
        return _stacked(
            dimension.exported_rates(values[:, place], rates[:, place])
            for place, dimension in enumerate(self.dimensions)
        )

    def _mine(self, foreign: Array) -> Array:
        """Returns the D numbers (T, D) of foreign ones."""
        return foreign if self.columns is None else foreign[:, list(self.columns)]

    def described(self) -> tuple[ActionDimension, ...]:
        """Returns the dimensions of the contract."""
        return tuple(dimension.described() for dimension in self.dimensions)


def _stacked(columns: Iterable[Array]) -> Array:
    return np.stack(list(columns), axis=1).astype(np.float32)


def dimension_of(fields: Mapping[str, Any]) -> Dimension:
    """Builds a dimension from a user's fields; `gripper` is a convention or its ends."""
    allowed = [field.name for field in fields_of(Dimension)]
    for name in fields:
        if name not in allowed:
            raise unknown_name("field of a dimension", name, allowed)
    missing = {"name", "arm"} - set(fields)
    if missing:
        raise ValueError(f"The dimension {dict(fields)} lacks {' and '.join(sorted(missing))}.")
    if fields.get("kind", "joint") not in get_args(ActionKind):
        raise unknown_name("kind of dimension", fields["kind"], get_args(ActionKind))
    if fields.get("kind") == "gripper":
        convention = gripper_convention(
            fields.get("gripper"), f"gripper convention of {fields['name']}"
        )
        return gripper_dimension(fields["name"], fields["arm"], convention)
    return Dimension(**fields)


def scale_of(unit: str) -> float:
    """Returns radians per unit of angle."""
    scales = {"rad": 1.0, "deg": float(np.pi / 180)}
    if unit not in scales:
        raise unknown_name("unit of angles", unit, scales)
    return scales[unit]


FAR_MM = 5.0
"""A larger error of recorded poses is shown as one of the kinematics."""
RECORDED = f"{SERIES}T_base_gripper/"
"""Gripper poses of a data set whose kinematics are known, by arm."""
_POSES = re.compile(
    r"(^|[/_.])((ee|eef|tcp|end_?effector|cartesian)_?(pos|pose|position|xyz)|T_base_gripper)"
    r"($|[/_.])",
    re.IGNORECASE,
)
_COMMANDED = re.compile(r"action|command|target|goal|desired", re.IGNORECASE)


def distances_mm(episode: ImportedEpisode) -> dict[str, float]:
    """Returns how far recorded gripper positions are from those of the kinematics.

    Returns:
        The median over the steps in mm, by the key of the series; empty without kinematics or
        recorded positions.
    """
    arrays = episode.arrays
    if embodiment_of(episode.contract) is None:
        return {}
    found = {}
    for key, series in arrays.items():
        arm = _arm(key, episode.contract.arms) if key.startswith(SERIES) else None
        recorded = None if arm is None else _positions(series)
        if recorded is None:
            continue
        computed = np.asarray(arrays[f"T_base_gripper/{arm}"], np.float64)[:, :3, 3]
        apart = np.linalg.norm(recorded - computed, axis=1)
        found[key] = 1e3 * float(np.median(apart))
    return found


def _arm(key: str, arms: Iterable[str]) -> str | None:
    """Returns the arm whose measured gripper poses a series has by its name, or None."""
    if not _POSES.search(key.removeprefix(SERIES)) or _COMMANDED.search(key):
        return None
    known = list(arms)
    if len(known) == 1:
        return known[0]
    named = [arm for arm in known if arm in re.split(r"[/_.]", key)]
    return named[0] if len(named) == 1 else None


def _positions(series: Array) -> Array | None:
    """Returns positions (T, 3) of poses with 3, 6, 7 or 16 numbers, or matrices; else None."""
    shape = series.shape[1:]
    if shape in ((4, 4), (16,)):
        return np.asarray(series, np.float64).reshape(-1, 4, 4)[:, :3, 3]
    return np.asarray(series[:, :3], np.float64) if shape in ((3,), (6,), (7,)) else None


def described(medians: Mapping[str, Iterable[float]], robot: str) -> list[tuple[bool, str]]:
    """Describes the medians of episodes in mm by series: whether they are far, and a sentence."""
    found = []
    for key, values in medians.items():
        largest = max(values)
        name = key.removeprefix(SERIES)
        sentence = f"The kinematics of {robot} and the recorded {name} differ by {largest:.1f} mm"
        if largest > FAR_MM:
            sentence += (
                f"; allowed: {FAR_MM:g} mm. Is the gripper frame (tcp), the base, the unit or the "
                "order of the joints another one? stringline-data embodiment model=FILE "
                f"recordings=STORE poses={name} compares all frames"
            )
        found.append((largest > FAR_MM, f"{sentence}."))
    return found
