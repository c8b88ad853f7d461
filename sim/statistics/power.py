"""Sample size of McNemar's exact test for paired comparisons of policies."""

from stringline.encoders.statistics.paired_outcomes import MOST_PAIRS, pairs_needed
from stringline.sim.statistics.paired import Pairs

MOST_SEEDS = MOST_PAIRS


def seeds_needed(pairs: Pairs, power: float = 0.8, level: float = 0.05) -> int | None:
    """Returns the number of seeds that McNemar's exact test needs at the observed rates.

    Returns:
        The number of seeds, of which `pairs_needed` says how exact it is; None if both policies won
        equally many seeds, or if more than `MOST_SEEDS` are needed.
    """
    return pairs_needed(pairs.only_first, pairs.only_second, pairs.count, power, level)
