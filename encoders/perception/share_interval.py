"""The interval of a measure between 0 and 1, such as an accuracy, over rooms or images."""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.encoders.perception.group_variance import drawn_variance, student_quantile


def share_interval(
    statistic: Callable[[NDArray[np.intp]], float],
    groups: Sequence[Hashable],
    *,
    draws: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Returns the interval of a statistic between 0 and 1, such as an accuracy.

    Wilson's interval with the effective number of independent outcomes, p (1 - p) over the variance
    over groups, and a quantile of Student's distribution (N. Dean and M. Pagano, "Evaluating
    confidence interval methods for binomial proportions in clustered surveys", Journal of Survey
    Statistics and Methodology 3, 2015, p. 484-503). If all draws are equal, as at 0 and 1, each
    group is one outcome.

    Args:
        statistic: See `resampled`.
        groups: The group of each image, such as its room.
        draws: Number of draws, 100 or more.
        confidence: Coverage of the interval, between 0 and 1.
        seed: Seed of the draws.

    Raises:
        ValueError: The statistic of a draw is not finite, or there are fewer than two groups.
    """
    value, variance, size = drawn_variance(statistic, groups, draws, confidence, seed)
    spread = value * (1 - value)
    count = spread / variance if variance and spread > 0 else float(size)
    t2 = student_quantile(size - 1, confidence) ** 2
    centre = (value + t2 / (2 * count)) / (1 + t2 / count)
    half = math.sqrt(t2 * (spread / count + t2 / (4 * count**2))) / (1 + t2 / count)
    return max(0.0, centre - half), min(1.0, centre + half)
