"""Checks of arguments: unknown names with the nearest valid ones, and ranges of numbers."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real

import stringline


def unknown_name(kind: str, got: str, allowed: Iterable[str]) -> ValueError:
    """Returns the error for a name that does not exist.

    Args:
        kind: Noun for the name in the message ("camera", "task").
        got: The name as the user wrote it.
        allowed: All valid names.
    """
    names = sorted(allowed)
    # On a command line `got` may be a number.
    near = difflib.get_close_matches(str(got), names, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ValueError(f"There is no {kind} {got!r}.{hint} Allowed: {', '.join(names) or 'none'}.")


def unknown_public_name(target: str) -> ValueError:
    """Returns the error for a `_target_` that is not in the public API of this package."""
    near = difflib.get_close_matches(target.rpartition(".")[2], stringline.HOME, n=1, cutoff=0.4)
    hint = f" Did you mean 'stringline.{near[0]}'?" if near else ""
    return ValueError(
        f"There is no public name {target!r}.{hint} docs/api.md lists all public names."
    )


@dataclass(frozen=True, kw_only=True)
class Range:
    """An interval of finite numbers with closed, open or missing ends.

    NaN lies in no range, although every comparison of NaN with a bound is false.

    Attributes:
        least: Closed lower bound.
        above: Open lower bound, in place of `least`.
        most: Closed upper bound.
        below: Open upper bound, in place of `most`.
        whole: Whether only whole numbers are allowed.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    whole: bool = False

    def __contains__(self, number: object) -> bool:
        """Returns whether a value is a number (not a bool) in the range."""
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
        """Returns the range in words, for the end of an error message."""
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
        """Checks numbers, given by name.

        Raises:
            ValueError: A number lies outside of the range.
        """
        for name, number in numbers.items():
            if number not in self:
                raise ValueError(f"{name} is {number!r}; allowed: {self}.")


FINITE = Range()
POSITIVE = Range(above=0)
NOT_NEGATIVE = Range(least=0)
SHARE = Range(least=0, below=1)
"""A share below 1, such as the share of examples in which an input is masked."""
WHOLE = Range(least=0, whole=True)
COUNT = Range(least=1, whole=True)
PORTS = Range(least=0, most=65535, whole=True)
"""Ports of a server; 0 takes any free port."""
