"""Dimensions of foreign states and actions, and their conversion to the units of the contract."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any, get_args

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import ActionDimension, ActionKind, ActionMode, Array
from stringline.datasets.formats.checks import LARGEST_ANGLE, LARGEST_POSITION_M, check_values
from stringline.datasets.formats.grippers import (
    HIGHEST,
    LOWEST,
    GripperConvention,
    gripper_convention,
)


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
    """A foreign state or action of D numbers, with conversions from and to the contract's units."""

    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D numbers."""
        return tuple(dimension.name for dimension in self.dimensions)

    def imported(self, key: str, foreign: Array) -> Array:
        """Converts foreign values (T, D) to the units of the contract, float32.

        Impossible values raise `ForeignDataError` with the name `key`.
        """
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
