"""Coverage of intervals of a paired difference: Tango's beside Newcombe's.

    python benchmarks/paired_intervals.py --json paired_intervals.json

Simulated comparisons of two policies of known rates, whose outcomes on a seed are correlated.
Names: coverage/<seeds>/<rate>_<rate>_<correlation>, the share of Tango's 95 % intervals that hold
the true difference; the peer is `newcombe_10`, the ratio that of the shares. R. G. Newcombe,
"Improved confidence intervals for the difference between binomial proportions based on paired
data", Statistics in Medicine 17 (1998), p. 2635-2650, method 10. Takes ten seconds.
"""

import math
import sys
from functools import cache

import numpy as np
from measurement import parser_of, row, write_rows

from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.paired import Pairs, difference_interval

SEEDS = (20, 50, 100, 200)
SETTINGS = (
    (0.5, 0.5, 0.0),
    (0.5, 0.5, 0.5),
    (0.9, 0.9, 0.3),
    (0.9, 0.7, 0.3),
    (0.9, 0.7, 0.0),
    (0.95, 0.95, 0.5),
    (0.5, 0.3, 0.6),
    (0.1, 0.05, 0.2),
    (0.98, 0.9, 0.1),
    (0.9, 0.5, 0.1),
)


def newcombe(pairs: Pairs) -> Interval:
    """Returns the interval of method 10, second less first."""
    a, b, c, d = pairs.both, pairs.only_second, pairs.only_first, pairs.neither
    product = (a + b) * (c + d) * (a + c) * (b + d)
    agreement = a * d - b * c
    if agreement > 0:
        agreement = max(agreement - pairs.count / 2, 0)
    phi = agreement / math.sqrt(product) if product else 0.0
    first, second = pairs.first, pairs.second
    below, above = second.value - second.low, first.high - first.value
    low = pairs.difference - math.sqrt(max(below**2 - 2 * phi * below * above + above**2, 0.0))
    over, under = second.high - second.value, first.value - first.low
    return Interval(
        low, pairs.difference + math.sqrt(max(over**2 - 2 * phi * over * under + under**2, 0.0))
    )


def coverage(setting: tuple[float, float, float], seeds: int, times: int) -> tuple[float, float]:
    """Returns the shares of Tango's and of Newcombe's intervals that hold the true difference."""
    first, second, correlation = setting
    both = first * second + correlation * math.sqrt(first * (1 - first) * second * (1 - second))
    chances = np.clip([both, first - both, second - both, 1 - first - second + both], 0.0, 1.0)
    drawn, counts = np.unique(
        np.random.default_rng(0).multinomial(seeds, chances, times), axis=0, return_counts=True
    )
    # Tango's interval depends on the discordant pairs alone.
    tango = cache(
        lambda lost, gained: difference_interval(Pairs(seeds - lost - gained, lost, gained, 0))
    )

    def holds(interval: Interval) -> bool:
        return interval.low - 1e-9 <= second - first <= interval.high + 1e-9

    rows = [Pairs(*(int(count) for count in row)) for row in drawn]
    held = [(holds(tango(row.only_first, row.only_second)), holds(newcombe(row))) for row in rows]
    shares = counts @ np.array(held) / times
    return float(shares[0]), float(shares[1])


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--times", type=int, default=100_000, help="simulated comparisons per setting"
    )
    arguments = parser.parse_args()
    results = []
    for seeds in SEEDS:
        for setting in SETTINGS:
            tango, peer = coverage(setting, seeds, arguments.times)
            name = f"coverage/{seeds}/{'_'.join(map(str, setting))}"
            sys.stdout.write(f"{name:<32}  Tango {tango:.3f}  Newcombe 10 {peer:.3f}\n")
            results.append(row(name, tango, "share", "newcombe_10", tango / peer))
    write_rows(results, arguments.json)


if __name__ == "__main__":
    main()
