"""Episodes of a comparison that stops when it is decided, beside a fixed number of seeds.

    python benchmarks/sequential_test.py --json sequential_test.json

Names: seeds/<rate>_<rate>, with the probabilities that only the first and only the second policy
succeeds on a seed. The value is the expected number of seeds of the sequential test, which stops
without a decision at the smallest number for a power of 80 %; the peer is the number of seeds with
which McNemar's exact test (`mcnemar`) has this power, which has to be known in advance. Names
error/<rate>_<rate>: the probability that the sequential test calls one of two equally good policies
better and that McNemar's test does if it is examined after each of 200 seeds. All numbers
are exact. Takes a minute.
"""

import sys
from functools import cache

import numpy as np
from measurement import parser_of, row, write_rows

from stringline.sim.statistics.paired import Pairs, decision, mcnemar, seeds_needed

POWER = 0.8
DIFFERENCES = ((0.05, 0.45), (0.05, 0.25), (0.1, 0.3), (0.15, 0.35), (0.02, 0.12))
EQUAL = ((0.05, 0.05), (0.1, 0.1), (0.25, 0.25))


def seeds_for_power(only_first: float, only_second: float) -> tuple[int, int, float]:
    """Returns seeds of McNemar's test, most seeds of the sequential one, and its expected number.

    Both have a power of 80 %.
    """
    percent = [round(100 * share) for share in (only_first, only_second)]
    fixed = seeds_needed(Pairs(100 - sum(percent), *percent, 0), POWER)
    assert fixed is not None, "these differences need few seeds"
    low, high = fixed // 2, 2 * fixed
    while high - low > 1:
        middle = (low + high) // 2
        reached = decision(middle, only_first, only_second).share >= POWER
        low, high = (low, middle) if reached else (middle, high)
    return fixed, high, decision(high, only_first, only_second).expected_seeds


def examined_mcnemar(discordant: float, seeds: int) -> float:
    """Returns the probability that McNemar's p is at most 5 % after one of so many seeds."""
    rejects = cache(lambda lost, gained: mcnemar(Pairs(0, lost, gained, 0)) <= 0.05)
    running = np.zeros((seeds + 1, seeds + 1))
    running[0, 0] = 1.0
    counts = range(seeds + 1)
    stops = np.array([[rejects(*sorted((a, b))) for b in counts] for a in counts])
    for _ in range(seeds):
        after = running * (1 - discordant)
        after[1:] += discordant / 2 * running[:-1]
        after[:, 1:] += discordant / 2 * running[:, :-1]
        running = np.where(stops, 0.0, after)
    return 1 - float(running.sum())


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--settings", type=int, default=5, help="number of settings")
    parser.add_argument("--examined", type=int, default=200, help="seeds of the error rates")
    arguments = parser.parse_args()
    results = []
    for first, second in DIFFERENCES[: arguments.settings]:
        fixed, most, expected = seeds_for_power(first, second)
        name = f"seeds/{first}_{second}"
        sys.stdout.write(
            f"{name:<18}  expected {expected:5.0f} of at most {most:4d}  McNemar {fixed:4d}\n"
        )
        results.append(row(name, expected, "seeds", "mcnemar", expected / fixed))
    for first, second in EQUAL[: arguments.settings]:
        error = decision(arguments.examined, first, second).share
        peer = examined_mcnemar(first + second, arguments.examined)
        name = f"error/{first}_{second}"
        sys.stdout.write(f"{name:<18}  {error:.3f}  McNemar after each seed {peer:.3f}\n")
        results.append(row(name, error, "probability", "mcnemar", error / peer))
    write_rows(results, arguments.json)


if __name__ == "__main__":
    main()
