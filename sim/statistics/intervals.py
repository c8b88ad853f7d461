"""Success rates with confidence intervals, also of a policy that a person helps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """An interval of rates, or of differences of rates."""

    low: float
    high: float


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Returns the score interval of a binomial rate.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22
    (1927), p. 209-212. Unlike the normal approximation it holds for few trials and for rates near 0
    and 1. Without trials the interval is [0, 1].
    """
    if not 0 <= successes <= trials or not 0 < confidence < 1:
        raise ValueError(
            f"{successes} of {trials} at confidence {confidence}: allowed are 0 <= successes <= "
            f"trials, 0 < confidence < 1."
        )
    if trials == 0:
        return Interval(0.0, 1.0)
    z2 = NormalDist().inv_cdf(0.5 + confidence / 2) ** 2
    centre = (successes + z2 / 2) / (trials + z2)
    half = math.sqrt(z2 * (successes * (trials - successes) / trials + z2 / 4)) / (trials + z2)
    # The ends are exact where rounding would leave 1e-17.
    low = 0.0 if successes == 0 else centre - half
    return Interval(low, 1.0 if successes == trials else centre + half)


def score_interval(rate: float, inverse: float, z: float) -> Interval:
    """Returns Wilson's interval of an estimated rate.

    Args:
        rate: The rate, 0 to 1.
        inverse: 1 / (effective number of episodes).
        z: Quantile of the normal distribution.
    """
    centre = (rate + z * z / 2 * inverse) / (1 + z * z * inverse)
    reach = z * math.sqrt(rate * (1 - rate) * inverse + (z * inverse / 2) ** 2)
    reach /= 1 + z * z * inverse
    low = 0.0 if rate == 0 else centre - reach  # Exact where rounding would leave 1e-17.
    return Interval(low, 1.0 if rate == 1 else centre + reach)


@dataclass(frozen=True)
class Rate:
    """A number of successes in a number of trials, with its Wilson 95 % interval."""

    successes: int
    trials: int

    def __post_init__(self) -> None:
        wilson(self.successes, self.trials)

    @property
    def value(self) -> float:
        """Share of successes; NaN without trials."""
        return self.successes / self.trials if self.trials else math.nan

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return wilson(self.successes, self.trials).low

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return wilson(self.successes, self.trials).high

    def to_dict(self) -> dict[str, float]:
        """Returns counts and interval as plain JSON."""
        return {
            "successes": self.successes,
            "trials": self.trials,
            "low": self.low,
            "high": self.high,
        }

    def __str__(self) -> str:
        """Returns text such as `47/50 = 94 % [84, 98]`."""
        if not self.trials:
            return "0/0"
        return (
            f"{self.successes}/{self.trials} = {self.value:.0%} [{self.low * 100:.0f}, "
            f"{self.high * 100:.0f}]"
        ).replace("%", " %")


@dataclass(frozen=True)
class Attempt:
    """An episode of a session.

    Attributes:
        instruction: Instruction of the policy.
        success: Whether the task was done; None if nobody has said it.
        helped: Whether a person took over.
    """

    instruction: str
    success: bool | None
    helped: bool


def rates_alone(attempts: Sequence[Attempt]) -> dict[str, Rate]:
    """Returns the success rates of a policy alone by instruction.

    An episode in which a person took over is no success of the policy; one without a label does not
    count.
    """
    found: dict[str, Rate] = {}
    for attempt in attempts:
        if attempt.success is not None:
            before = found.get(attempt.instruction, Rate(0, 0))
            alone = attempt.success and not attempt.helped
            found[attempt.instruction] = Rate(before.successes + alone, before.trials + 1)
    return found
