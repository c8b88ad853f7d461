"""Success rates of recipes of which several trainings were measured: intervals and differences.

A recipe trained twice gives policies of different success, so the trainings are the unit of a
recipe, and the starts lie within them. Intervals over the pooled episodes are too narrow: they
hold for these very checkpoints.

The model is a mixed one. In the mean of all episodes of a recipe, the rate of a training has the
standard deviation sigma, a start is harder or easier for all trainings, and the rest is binomial
noise. The analysis of variance of the outcomes (trainings x starts) gives the last two. Two to
five trainings say little on sigma, and a t interval is wide or, where the trainings agree by
chance, of no width. So sigma has a prior, half a Cauchy distribution (A. Gelman, "Prior
distributions for variance parameters in hierarchical models", Bayesian Analysis 1 (2006), p.
515-534), whose heavy tail lets the data decide. Its scale grows with the number of trainings: the
more there are, the less prior knowledge is needed, and one scale for all numbers gave intervals
that were too narrow for five trainings. Simulated intervals contain the truth about as often as
they should if trainings differ by 5 to 8 points (`benchmarks/training_intervals.py`); if they
differ by 15 points, the intervals of two and three trainings contain it in 84 to 94 %. The interval
is that of the mixture of normal distributions over sigma; for rates it has the form of Wilson's, at
the effective number of episodes (C. Franco et al., "Comparative study of confidence intervals for
proportions in complex sample surveys", Journal of Survey Statistics and Methodology 7 (2019), p.
334-364), which holds near 0 and 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.sim.statistics.intervals import Interval, score_interval

RATE_SCALE = 0.015  # Scale of the prior of sigma per training of a recipe.
DIFFERENCE_SCALE = 0.02  # The same, for differences.
# With fewer trainings of each recipe, posterior probabilities below .05 are more frequent between
# equal recipes than 5 %: 8 to 9 % with two or three, 13 % if trainings differ by 15 points.
FEW_TRAININGS = 5
_SIGMAS = np.linspace(0.0, 0.6, 61)
_ROOT_STEPS = 40  # Each halves the bracket.

Outcomes = Sequence[NDArray[Any]]
"""Outcomes of a recipe, for each task an array (trainings, starts) of 0 and 1.

The trainings are the same in each task, in the same order; the number of starts may differ.
"""


@dataclass(frozen=True)
class Estimate:
    """A rate or a difference of rates over the trainings of recipes.

    Attributes:
        value: Mean over trainings, of the mean over tasks, of the share of successes; or the
            difference of two.
        interval: Its 95 % interval.
        posterior: Two-sided posterior probability of a difference: twice the posterior probability
            that it has the other sign; None for a rate. It is no p value: of equal recipes with two
            or three trainings each, 8 to 13 % have one below .05; see `FEW_TRAININGS`.
    """

    value: float
    interval: Interval
    posterior: float | None = None


@dataclass(frozen=True)
class _Components:
    """Components of variance of a recipe.

    Attributes:
        rates: Mean over the tasks, per training, (trainings,).
        columns: Mean over the trainings, of each start, per task.
        residual: Variance of a training's rate by binomial noise.
    """

    rates: NDArray[np.float64]
    columns: list[NDArray[np.float64]]
    residual: float

    @property
    def mean(self) -> float:
        return float(self.rates.mean())

    @property
    def noise(self) -> float:
        """Variance of the mean by binomial noise."""
        return self.residual / len(self.rates)

    def log_likelihood(self) -> NDArray[np.float64]:
        """Returns the logarithm of the likelihood of `_SIGMAS`, with a flat prior of the mean."""
        variance = _SIGMAS**2 + self.residual
        squares = float(((self.rates - self.mean) ** 2).sum())
        found: NDArray[np.float64] = (
            -(len(self.rates) - 1) / 2 * np.log(variance) - squares / 2 / variance
        )
        return found

    def variances(self) -> NDArray[np.float64]:
        """Returns the variance of the mean for each of `_SIGMAS`, without shared starts."""
        found: NDArray[np.float64] = (_SIGMAS**2 + self.residual) / len(self.rates)
        return found


def recipe_rate(outcomes: Outcomes, confidence: float = 0.95) -> Estimate:
    """Returns the success rate of a recipe with its interval over trainings and starts.

    Tasks count equally and are fixed: the interval is for the mean over these tasks.

    Raises:
        ValueError: There are fewer than two trainings or starts, or other values than 0 and 1.
    """
    parts = _components(outcomes)
    shared = _shared(parts.columns, parts.noise)
    half = _quantile(_posterior(RATE_SCALE, parts), parts.variances() + shared, confidence)
    smoothed = float(np.mean([_laplace(np.asarray(y, np.float64)) for y in outcomes]))
    z = _normal(confidence)
    interval = score_interval(parts.mean, (half / z) ** 2 / (smoothed * (1 - smoothed)), z)
    return Estimate(parts.mean, interval)


def recipe_difference(first: Outcomes, second: Outcomes, confidence: float = 0.95) -> Estimate:
    """Returns the difference of two recipes, second less first, with interval and posterior.

    Starts are paired: both recipes are measured on the same ones, so their difficulty cancels out
    as far as it is the same for both. Trainings are not paired: those of two recipes are
    independent even with equal seeds, since a seed starts different weights and batches in
    different networks. Both recipes have the same sigma, to which all their trainings contribute;
    with equal numbers of trainings the interval needs only its mean square.

    Raises:
        ValueError: As for `recipe_rate`, or tasks or starts differ in number.
    """
    if [y.shape[1:] for y in first] != [y.shape[1:] for y in second]:
        raise ValueError("The recipes were measured on different numbers of tasks or starts.")
    one, two = _components(first), _components(second)
    paired = [b - a for a, b in zip(one.columns, two.columns, strict=True)]
    shared = _shared(paired, one.noise + two.noise)
    weights = _posterior(DIFFERENCE_SCALE, one, two)
    variances = one.variances() + two.variances() + shared
    value = two.mean - one.mean
    half = _quantile(weights, variances, confidence)
    interval = Interval(max(value - half, -1.0), min(value + half, 1.0))
    posterior = 2 * float(weights @ _upper_tail(abs(value) / np.sqrt(variances)))
    return Estimate(value, interval, min(posterior, 1.0))


def _components(outcomes: Outcomes) -> _Components:
    tables = [np.asarray(y, np.float64) for y in outcomes]
    trainings = {len(y) for y in tables}
    if not tables or len(trainings) > 1 or any(y.ndim != 2 or min(y.shape) < 2 for y in tables):
        shapes = ", ".join(str(y.shape) for y in tables) or "none"
        raise ValueError(
            f"The outcomes have the shapes {shapes}; allowed: (trainings, starts) for each task, "
            f"with the same trainings, at least two of both."
        )
    if not all(np.isin(y, (0.0, 1.0)).all() for y in tables):
        raise ValueError("Outcomes are 0 and 1.")
    columns = [y.mean(axis=0) for y in tables]
    residual = sum(_residual(y) / y.shape[1] for y in tables) / len(tables) ** 2
    rates = np.mean([y.mean(axis=1) for y in tables], axis=0)
    # Equal outcomes do not prove certain ones, so Laplace's rule gives a lower bound of the noise.
    floor = sum(_laplace(y) * (1 - _laplace(y)) / y.shape[1] for y in tables) / len(tables) ** 2
    shared = _shared(columns, residual / len(rates))
    least = max(floor / 4, floor - len(rates) * shared)
    return _Components(rates, columns, max(residual, least))


def _posterior(scale: float, *recipes: _Components) -> NDArray[np.float64]:
    """Returns the weights of `_SIGMAS`, which are the same for all recipes; their sum is 1.

    The scale of the prior is `scale` times the mean number of trainings of a recipe.
    """
    trainings = sum(len(recipe.rates) for recipe in recipes) / len(recipes)
    prior = 1 / (1 + (_SIGMAS / scale / trainings) ** 2)
    logs = np.log(prior) + sum(recipe.log_likelihood() for recipe in recipes)
    weights = np.exp(logs - logs.max())
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def _residual(y: NDArray[np.float64]) -> float:
    """Returns the mean square of outcomes less the effects of training and start."""
    rest = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    return float((rest**2).sum() / ((y.shape[0] - 1) * (y.shape[1] - 1)))


def _laplace(y: NDArray[np.float64]) -> float:
    """Returns the rate with one more success and one more failure."""
    return (float(y.sum()) + 1) / (y.size + 2)


def _shared(columns: Sequence[NDArray[np.float64]], noise: float) -> float:
    """Returns the variance of a mean by the choice of starts, less the noise within it."""
    total = sum(float(column.var(ddof=1)) / len(column) for column in columns)
    return max(total / len(columns) ** 2 - noise, 0.0)


def _quantile(
    weights: NDArray[np.float64], variances: NDArray[np.float64], confidence: float
) -> float:
    """Returns the half width of the central interval of a mixture of normal distributions."""
    deviations = np.sqrt(variances)
    high = float(deviations.max()) * _normal(confidence)
    return _root(
        lambda x: float(weights @ _upper_tail(x / deviations)) > (1 - confidence) / 2, high
    )


def _root(above: Callable[[float], bool], high: float) -> float:
    """Returns where `above` ends to hold between 0 and `high`."""
    low = 0.0
    for _ in range(_ROOT_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return high


def _normal(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"The confidence is {confidence}; allowed: between 0 and 1.")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _upper_tail(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns 1 - Phi(x) for x >= 0, with an error below 1e-7.

    M. Abramowitz and I. Stegun, Handbook of Mathematical Functions (1964), equation 26.2.17; NumPy
    has no error function.
    """
    t = 1 / (1 + 0.2316419 * x)
    series = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    found: NDArray[np.float64] = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * series
    return found
