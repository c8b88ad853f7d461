"""Coverage of intervals over trainings: the mixed model's beside those of pooled episodes.

    python benchmarks/training_intervals.py --json training_intervals.json

Simulated recipes whose trainings differ by a known standard deviation (sigma), evaluated on the
same starts of differing difficulty. Names: <quantity>/<trainings>/<sigma>/<rate>_<deviation of the
starts>, the share of 95 % intervals that contain the truth, for the `rate` of a recipe and for the
`difference` of two equal ones; the peer is `pooled`, an interval that takes all episodes for
independent (Wilson's; of differences, the normal one). Takes two minutes.
"""

import math
import sys
from typing import NamedTuple

import numpy as np
from measurement import parser_of, row, write_rows
from numpy.typing import NDArray

from stringline.sim.statistics.intervals import Interval, Rate
from stringline.sim.statistics.trainings import recipe_difference, recipe_rate

STARTS = 50
TRAININGS = (2, 3, 5)
SIGMAS = (0.05, 0.08, 0.15)
RATES = ((0.5, 0.0), (0.7, 0.15), (0.8, 0.3), (0.93, 0.15))


class Setting(NamedTuple):
    """A recipe: number of trainings, their deviation, mean rate, deviation of the starts."""

    trainings: int
    sigma: float
    rate: float
    starts: float

    @property
    def name(self) -> str:
        """The part of the name that all quantities share."""
        return f"{self.trainings}/{self.sigma}/{self.rate}_{self.starts}"

    def difficulties(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Returns the mean rate on each of `count` starts, drawn from a beta distribution."""
        if not self.starts:
            return np.full(count, self.rate)
        scale = self.rate * (1 - self.rate) / self.starts**2 - 1
        return rng.beta(self.rate * scale, (1 - self.rate) * scale, count)

    def outcomes(
        self, rng: np.random.Generator, starts: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns the outcomes (trainings, starts) of new trainings."""
        effects = rng.normal(0, self.sigma, (self.trainings, 1))
        chances = np.clip(starts + effects, 0, 1)
        return (rng.random(chances.shape) < chances).astype(np.float64)

    def truth(self, rng: np.random.Generator) -> float:
        """Returns the mean rate; clipping at 0 and 1 moves it."""
        starts = self.difficulties(rng, 10**6)
        return float(np.clip(starts + rng.normal(0, self.sigma, 10**6), 0, 1).mean())


def coverage(setting: Setting, times: int) -> dict[str, tuple[float, float]]:
    """Returns the shares of intervals with the truth by quantity: the model's and the pooled."""
    rng = np.random.default_rng(0)
    truth = setting.truth(rng)
    held = np.zeros((2, 2))
    for _ in range(times):
        starts = setting.difficulties(rng, STARTS)
        first, second = setting.outcomes(rng, starts), setting.outcomes(rng, starts)
        one, two = (Rate(int(y.sum()), y.size) for y in (first, second))
        held += [
            [_has(recipe_rate([first]).interval, truth), one.low <= truth <= one.high],
            [_has(recipe_difference([first], [second]).interval, 0), _has(_pooled(one, two), 0)],
        ]
    rate, difference = (held / times).tolist()
    return {"rate": tuple(rate), "difference": tuple(difference)}


def _pooled(one: Rate, two: Rate) -> Interval:
    half = 1.96 * math.sqrt(sum(r.value * (1 - r.value) / r.trials for r in (one, two)))
    return Interval(two.value - one.value - half, two.value - one.value + half)


def _has(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=1000, help="simulated recipes per setting")
    arguments = parser.parse_args()
    results = []
    for trainings in TRAININGS:
        for sigma in SIGMAS:
            for rate, starts in RATES:
                setting = Setting(trainings, sigma, rate, starts)
                for quantity, (share, pooled) in coverage(setting, arguments.times).items():
                    name = f"{quantity}/{setting.name}"
                    text = f"{name:<32}  mixed model {share:.3f}  pooled {pooled:.3f}\n"
                    sys.stdout.write(text)
                    results.append(row(name, share, "share", "pooled", share / pooled))
    write_rows(results, arguments.json)


if __name__ == "__main__":
    main()
