"""Settings that are one value, or that each episode or example draws anew.

A setting is a value, a range `[LOW, HIGH]`, or one of a list `{one_of: [A, B, ...]}`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast, overload

import numpy as np

from stringline.datasets.contract.argument_checks import Range, unknown_name

ONE_OF = "one_of"
Value = TypeVar("Value", float, str)
Drawn: TypeAlias = float | Sequence[float] | Mapping[str, Sequence[float]]
"""The forms in which a setting gives a `Distribution` of numbers."""


@dataclass(frozen=True)
class Distribution(Generic[Value]):
    """The values that a setting can have.

    Attributes:
        values: The two ends of a range, or all values of a list; one value is fixed.
        between: Whether `values` are the ends of a range.
    """

    values: tuple[Value, ...]
    between: bool = False

    @property
    def fixed(self) -> bool:
        """Whether all draws have the same value."""
        return len(set(self.values)) == 1

    @property
    def value(self) -> Value:
        """The fixed value; of several values the first."""
        return self.values[0]

    @property
    def highest(self) -> Value:
        """The largest of all values."""
        return max(self.values)

    def mapped(self, function: Callable[[Value], Value]) -> "Distribution[Value]":
        """Returns the distribution of a monotonic function, uniform between its values."""
        values = [function(value) for value in self.values]
        return Distribution(tuple(sorted(values) if self.between else values), self.between)

    def draw(self, rng: np.random.Generator) -> Value:
        """Draws a value: uniform between the ends, or each of a list with equal probability."""
        if self.between:
            low, high = self.values
            return type(low)(rng.uniform(float(low), float(high)))
        return self.values[rng.integers(len(self.values))]


@overload
def distribution(name: str, given: object, allowed: Range) -> Distribution[float]: ...
@overload
def distribution(name: str, given: object, allowed: Sequence[str]) -> Distribution[str]: ...
def distribution(
    name: str, given: object, allowed: Range | Sequence[str]
) -> Distribution[float] | Distribution[str]:
    """Reads a setting.

    Args:
        name: Its name, for messages.
        given: A value, `[LOW, HIGH]`, or `{one_of: [A, B, ...]}`. Names have no ranges.
        allowed: The numbers or names that are allowed.

    Raises:
        ValueError: A value is not allowed, or the ends of the range are swapped.
    """
    values, between = _parts(name, given, numbers=isinstance(allowed, Range))
    if not isinstance(allowed, Range):
        for value in values:
            if value not in allowed:
                raise unknown_name(name, str(value), allowed)
        return Distribution(tuple(str(value) for value in values))
    for value in values:
        allowed.check(**{name: value})
    numbers = [float(value) for value in cast("Sequence[float]", values)]
    if between and numbers[0] > numbers[1]:
        low, high = values
        raise ValueError(f"{name} is [{low}, {high}]; the ends of a range ascend: [{high}, {low}].")
    return Distribution(tuple(numbers), between)


def _parts(name: str, given: object, *, numbers: bool) -> tuple[Sequence[object], bool]:
    """Returns the values of a setting, and whether they are the ends of a range."""
    if isinstance(given, Mapping):
        for key in given:
            if key != ONE_OF:
                raise unknown_name(f"key of {name}", str(key), [ONE_OF])
        values = given.get(ONE_OF)
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(f"{name} is {dict(given)}; allowed: {{{ONE_OF}: [A, B, ...]}}.")
        return values, False
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [given], False
    if not numbers or len(given) != 2:
        allowed = "a value" + ", a range [LOW, HIGH]" * numbers
        raise ValueError(f"{name} is {list(given)}; allowed: {allowed} or {{{ONE_OF}: [A, B]}}.")
    return given, True
