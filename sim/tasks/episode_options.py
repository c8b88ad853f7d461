"""The options of a task's episodes: checked values, and those that each episode draws.

An option is one value, a range, or one of a list.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.looks.looks import OPTION, PLAIN, check_looks
from stringline.sim.shifts.shift_catalogue import NAMES, number, strength

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


HEIGHT, SPREAD, STRICT = "table_height", "start_spread", "strict"
OPTIONS = (HEIGHT, SPREAD, STRICT, OPTION)


def spread_of(given: object) -> Drawable[float]:
    """Reads the share of the range of start poses, 0 for the home pose to 1.

    Raises:
        ValueError: A value is not allowed.
    """
    return drawable(SPREAD, given, partial(number, low=0.0, high=1.0))


@dataclass(frozen=True)
class EpisodeOptions:
    """Values of options, or what an episode draws them from.

    Attributes:
        height: Height of the table top above the plane z = 0, metres.
        strengths: Strengths of shifts by name, 0 to 1.
        looks: Names of looks.
        start_spread: Share of the range of start poses, 0 for the home pose to 1.
    """

    height: Drawable[float]
    strengths: Mapping[str, Drawable[float]]
    looks: Drawable[str]
    start_spread: Drawable[float]

    @classmethod
    def of(
        cls, options: Mapping[str, Any], heights: tuple[float, float], usual: Mapping[str, float]
    ) -> "EpisodeOptions":
        """Reads options; `heights` are the allowed ones, and `usual` the default strengths.

        Raises:
            ValueError: An option is unknown or out of range.
        """
        for name in options:
            if name not in (*OPTIONS, *NAMES):
                raise unknown_name("task option", name, [*OPTIONS, *NAMES])
        low, high = heights
        as_height = partial(number, low=low, high=high, unit="m")
        given = {**usual, **options}
        return cls(
            drawable(HEIGHT, options.get(HEIGHT, 0.0), as_height),
            {name: drawable(name, given[name], strength) for name in given if name in NAMES},
            drawable(OPTION, options.get(OPTION, PLAIN), check_looks, ordered=False),
            spread_of(options.get(SPREAD, 0.0)),
        )

    def draw(self, seed: Sequence[int]) -> "EpisodeOptions":
        """Returns the options of an episode; each is drawn from a random stream of its own."""

        def one(name: str, values: Drawable[Any]) -> Drawable[Any]:
            tag = zlib.crc32(f"option {name}".encode())
            return Drawable((values.draw(np.random.default_rng([*seed, tag])),))

        strengths = {name: one(name, values) for name, values in self.strengths.items()}
        return EpisodeOptions(
            one(HEIGHT, self.height),
            strengths,
            one(OPTION, self.looks),
            one(SPREAD, self.start_spread),
        )

    def drawn_by(self, episode: "EpisodeOptions") -> dict[str, Any]:
        """Returns the values of an episode that `draw` has drawn from several, by option."""
        own, other = (
            {HEIGHT: each.height, SPREAD: each.start_spread, **each.strengths}
            for each in (self, episode)
        )
        return {name: other[name].value for name, values in own.items() if not values.fixed}
