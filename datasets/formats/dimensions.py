"""The numbers of a foreign state or action: what each means, and its conversion to the contract's units and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any, get_args

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import ActionDimension, ActionKind, ActionMode, Array
from stringline.datasets.formats.checks import LARGEST_ANGLE, LARGEST_POSITION_M, refuse
from stringline.datasets.formats.grippers import (
    HIGHEST,
    LOWEST,
    GripperConvention,
    gripper_convention,
)


@dataclass(frozen=True)
class Dimension:
    """One number of a foreign state or action.

    Attributes:
        name: Unique.
        arm: The arm it belongs to.
        kind: What it says or commands.
        mode: Absolute, or relative to the measured state.
        unit: In the contract, after scaling.
        frame: `joint`, or the frame that a Cartesian number is expressed in.
        scale: Contract's value per foreign value; grippers have a convention instead.
        gripper: How an opening is counted.
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
        """Refuses grippers without a convention."""
        if (self.kind == "gripper") != (self.gripper is not None):
            raise ValueError(
                f"{self.name!r} is of kind {self.kind!r}; a gripper, and nothing else, has a "
                f"convention."
            )

    def imported(self, foreign: Array) -> Array:
        """Converts foreign values (T,) to the contract's."""
        return foreign * self.scale if self.gripper is None else self.gripper.to_opening(foreign)

    def imported_rates(self, foreign: Array, rates: Array) -> Array:
        """Converts speeds (T,) at foreign values (T,)."""
        return (
            rates * self.scale
            if self.gripper is None
            else self.gripper.rate_to_opening(foreign, rates)
        )

    def exported(self, values: Array) -> Array:
        """Converts values (T,) of the contract to foreign ones."""
        return values / self.scale if self.gripper is None else self.gripper.from_opening(values)

    def exported_rates(self, values: Array, rates: Array) -> Array:
        """Converts speeds (T,) at values (T,) of the contract to foreign ones."""
        return (
            rates / self.scale
            if self.gripper is None
            else self.gripper.rate_from_opening(values, rates)
        )

    def impossible(self, values: Array) -> tuple[Array, str]:
        """Returns which of the contract's values (T,) cannot be, and what to say of them."""
        if self.gripper is not None:  # Written so that NaN, where no servo angle fits, counts too.
            return ~(
                (values >= LOWEST) & (values <= HIGHEST)
            ), f"no gripper opens so far under {self.gripper.name!r}"
        if self.kind == "joint":
            return (
                np.abs(values) > LARGEST_ANGLE,
                f"no joint turns so far in {'rad' if self.scale == 1 else 'deg'}; another unit?",
            )
        if self.kind == "position" and self.unit == "m":
            return np.abs(
                values
            ) > LARGEST_POSITION_M, f"that is more than {LARGEST_POSITION_M:g} m; millimetres?"
        return np.zeros(values.shape, bool), ""

    def described(self) -> ActionDimension:
        """Returns the dimension of an action."""
        return ActionDimension(self.name, self.arm, self.kind, self.mode, self.unit, self.frame)


def gripper_dimension(name: str, arm: str, convention: GripperConvention) -> Dimension:
    """Returns a gripper."""
    return Dimension(name, arm, "gripper", unit="opening", gripper=convention)


@dataclass(frozen=True)
class NumberVector:
    """A foreign state or action, convertible to the contract's units and back.

    Attributes:
        dimensions: One for each of the D numbers.
    """

    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D numbers."""
        return tuple(dimension.name for dimension in self.dimensions)

    def imported(self, key: str, foreign: Array) -> Array:
        """Converts values.

        Args:
            key: How messages name them.
            foreign: (T, D) in the source's units.

        Returns:
            (T, D) float32, in the contract's units.

        Raises:
            ForeignDataError: A value is impossible in the unit that was named.
        """
        values = np.empty(foreign.shape, np.float32)
        for column, dimension in enumerate(self.dimensions):
            with np.errstate(invalid="ignore"):
                found = dimension.imported(foreign[:, column])
            wrong, why = dimension.impossible(found)
            refuse(key, wrong[:, None], foreign[:, column : column + 1], (dimension.name,), why)
            values[:, column] = found
        return values

    def imported_rates(self, foreign: Array, rates: Array) -> Array:
        """Converts speeds (T, D) at values (T, D) to the contract's units per second, float32."""
        columns = [
            d.imported_rates(foreign[:, place], rates[:, place])
            for place, d in enumerate(self.dimensions)
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def exported(self, values: Array) -> Array:
        """Converts values (T, D) of the contract to the source's units, float32: the inverse of `imported`."""
        columns = [
            dimension.exported(values[:, place]) for place, dimension in enumerate(self.dimensions)
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def exported_rates(self, values: Array, rates: Array) -> Array:
        """Converts speeds (T, D) at values (T, D) of the contract to the source's units per second, float32."""
        columns = [
            d.exported_rates(values[:, place], rates[:, place])
            for place, d in enumerate(self.dimensions)
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def described(self) -> tuple[ActionDimension, ...]:
        """Returns the dimensions of an action."""
        return tuple(dimension.described() for dimension in self.dimensions)


def dimension_of(fields: Mapping[str, Any]) -> Dimension:
    """Builds a dimension from what a user wrote; `gripper` names a convention or gives its ends.

    Raises:
        ValueError: A field or a convention does not exist, or one is missing.
    """
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
    """Returns radians per unit of angle.

    Raises:
        ValueError: It is none.
    """
    scales = {"rad": 1.0, "deg": float(np.pi / 180)}
    if unit not in scales:
        raise unknown_name("unit of angles", unit, scales)
    return scales[unit]
