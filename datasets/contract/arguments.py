"""Checks of arguments: unknown names with the nearest valid ones, and numbers outside their range."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real


def unknown_name(kind: str, got: str, allowed: Iterable[str]) -> ValueError:
    """Returns the error for a name that does not exist.

    Args:
        kind: What was looked for, as a reader would say it ("camera", "task").
        got: The name as the user wrote it.
        allowed: Every valid name.
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(
        str(got), names, n=3, cutoff=0.4
    )  # A command line may have a number in its place.
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ValueError(f"There is no {kind} {got!r}.{hint} Allowed: {', '.join(names) or 'none'}.")


@dataclass(frozen=True, kw_only=True)
class Range:
    """Finite numbers between two ends, each of which may be open or not there.

    NaN is in no range. That has to be said, for a check that asks whether a number is too small
    lets NaN through: it is neither smaller nor larger than any number.

    Attributes:
        least: The smallest number of the range.
        above: In place of it, what every number of the range is above.
        most: The largest number of the range.
        below: In place of it, what every number of the range is below.
        whole: Whether only whole numbers belong to it.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    whole: bool = False

    def __contains__(self, number: object) -> bool:
        """Says whether a number lies in the range; what is no number does not, nor do truth values."""
        if isinstance(number, bool) or not isinstance(number, Integral if self.whole else Real):
            return False
        value: float = int(number) if isinstance(number, Integral) else float(number)
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
            and (isinstance(value, int) or math.isfinite(value))
        )

    def __str__(self) -> str:
        """Says what is allowed, as the end of a message does."""
        words = "whole numbers " if self.whole else ""
        if self.above is not None:
            end = "" if self.most is None else f", up to {self.most:g}"
            return f"{words}above {self.above:g}" + (
                end if self.below is None else f", below {self.below:g}"
            )
        if self.least is not None:
            end = " and above" if self.most is None else f" to {self.most:g}"
            return f"{words}{self.least:g}" + (
                end if self.below is None else f" to below {self.below:g}"
            )
        if self.most is not None or self.below is not None:
            return (
                f"{words}below {self.below:g}"
                if self.below is not None
                else f"{words}up to {self.most:g}"
            )
        return "whole numbers" if self.whole else "finite numbers"

    def check(self, **numbers: object) -> None:
        """Refuses numbers outside of the range, by name.

        Raises:
            ValueError: With the first of them, and what is allowed.
        """
        for name, number in numbers.items():
            if number not in self:
                raise ValueError(f"{name} is {number!r}; allowed: {self}.")


FINITE = Range()
POSITIVE = Range(above=0)
NOT_NEGATIVE = Range(least=0)
SHARE = Range(least=0, below=1)
"""Of a whole that must not be used up, such as the share of examples that something is hidden from."""
WHOLE = Range(least=0, whole=True)
COUNT = Range(least=1, whole=True)
PORTS = Range(least=0, most=65535, whole=True)
"""Where a server may listen; 0 is any that is free."""
