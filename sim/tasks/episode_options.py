"""The options of a task's episodes: checked values, and those that each episode draws."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.contract.distributions import Distribution, distribution
from stringline.sim.looks.looks import LOOKS, OPTION, PLAIN
from stringline.sim.shifts.shift_catalogue import NAMES

STRENGTHS = Range(least=0, most=1)
HEIGHT, SPREAD, STRICT = "table_height", "start_spread", "strict"
OPTIONS = (HEIGHT, SPREAD, STRICT, OPTION)


def spread_of(given: object) -> Distribution[float]:
    """Reads the share of the range of start poses, 0 for the home pose to 1.

    Raises:
        ValueError: A value is not allowed.
    """
    return distribution(SPREAD, given, STRENGTHS)


@dataclass(frozen=True)
class EpisodeOptions:
    """Values of options, or what an episode draws them from.

    Attributes:
        height: Height of the table top above the plane z = 0, metres.
        strengths: Strengths of shifts by name, 0 to 1.
        looks: Names of looks.
        start_spread: Share of the range of start poses, 0 for the home pose to 1.
    """

    height: Distribution[float]
    strengths: Mapping[str, Distribution[float]]
    looks: Distribution[str]
    start_spread: Distribution[float]

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
        table_tops = Range(least=low, most=high, unit="m")
        given = {**usual, **options}
        return cls(
            distribution(HEIGHT, options.get(HEIGHT, 0.0), table_tops),
            {name: distribution(name, given[name], STRENGTHS) for name in given if name in NAMES},
            distribution(OPTION, options.get(OPTION, PLAIN), LOOKS),
            spread_of(options.get(SPREAD, 0.0)),
        )

    def draw(self, seed: Sequence[int]) -> "EpisodeOptions":
        """Returns the options of an episode; each is drawn from a random stream of its own."""

        def one(name: str, values: Distribution[Any]) -> Distribution[Any]:
            tag = zlib.crc32(f"option {name}".encode())
            return Distribution((values.draw(np.random.default_rng([*seed, tag])),))

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
