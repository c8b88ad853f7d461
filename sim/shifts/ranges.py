"""Values of options that each episode draws: a range, or one of a list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name

ONE_OF = "one_of"
Value = TypeVar("Value", float, str)


@dataclass(frozen=True)
class Drawable(Generic[Value]):
    """The values that an option can have in an episode.

    Attributes:
        values: The two ends of a range, or all values of a list; one value is fixed.
        between: Whether `values` are the ends of a range.
    """

    values: tuple[Value, ...]
    between: bool = False

    @property
    def fixed(self) -> bool:
        """Whether every episode has the same value."""
        return len(set(self.values)) == 1

    @property
    def value(self) -> Value:
        """The fixed value; of several values the first."""
        return self.values[0]

    def draw(self, rng: np.random.Generator) -> Value:
        """Draws a value: uniform between the ends, or each of a list with equal probability."""
        if self.between:
            low, high = self.values
            return type(low)(rng.uniform(float(low), float(high)))
        return self.values[rng.integers(len(self.values))]


def drawable(
    name: str, given: object, check: Callable[[str, object], Value], *, ordered: bool = True
) -> Drawable[Value]:
    """Reads the value of an option: a value, `[LOW, HIGH]`, or `{one_of: [A, B, ...]}`.

    `check` returns a checked value, given the name of the option. Without an order there are no
    ranges.

    Raises:
        ValueError: A value is not allowed, or the ends of the range are swapped.
    """
    if isinstance(given, Mapping):
        return Drawable(tuple(check(name, each) for each in _listed(name, given)))
    if not isinstance(given, list | tuple):
        return Drawable((check(name, given),))
    if not ordered or len(given) != 2:
        allowed = "a value" + (", a range [LOW, HIGH]" if ordered else "")
        raise ValueError(f"{name} is {list(given)}; allowed: {allowed} or {{{ONE_OF}: [A, B]}}.")
    low, high = (check(name, end) for end in given)
    if low > high:
        raise ValueError(f"{name} is [{low}, {high}]; the ends of a range ascend: [{high}, {low}].")
    return Drawable((low, high), between=True)


def _listed(name: str, given: Mapping[Any, Any]) -> Sequence[object]:
    for key in given:
        if key != ONE_OF:
            raise unknown_name(f"key of {name}", str(key), [ONE_OF])
    values = given.get(ONE_OF)
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} is {dict(given)}; allowed: {{{ONE_OF}: [A, B, ...]}}.")
    return values
