"""Checks of arguments: unknown names with the nearest valid ones, and ranges of numbers.

Checks of the values of tensors can be switched off, since they make a training on a GPU wait.
"""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, TypeVar

import stringline

SettingsT = TypeVar("SettingsT")


def settings_of(kind: type[SettingsT], given: object, name: str) -> SettingsT:
    """Returns settings, a dataclass, of an entry of a configuration: of its fields by name.

    Raises:
        ValueError: The entry is not a mapping, or has a field that does not exist.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} is {given!r}; allowed: a mapping of settings.")
    known: Any = kind
    names = [field.name for field in fields(known)]
    for key in given:
        if key not in names:
            raise unknown_name(f"setting {name}", str(key), names)
    return kind(**given)


def printable(text: object) -> str:
    r"""Returns a text from data as one line that shows what it contains.

    Control characters and line ends are escaped, as in `\x1b` and `\n`, and so are the marks that
    change the direction of a text: a name must not move the cursor or forge a line of a report.
    """
    return "".join(
        character
        if character.isprintable() or character == " "
        else character.encode("unicode_escape").decode()
        for character in str(text)
    )


def unknown_name(kind: str, got: str, allowed: Iterable[str]) -> ValueError:
    """Returns the error for a name that does not exist; `kind` is its noun ("camera", "task")."""
    names = sorted(allowed)
    # On a command line `got` may be a number.
    near = difflib.get_close_matches(str(got), names, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ValueError(
        f"There is no {kind} {got!r}.{hint} Allowed: {printable(', '.join(names)) or 'none'}."
    )


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
        unit: Unit of the numbers, for messages.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    whole: bool = False
    unit: str = ""

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
        """Returns the allowed numbers in words, such as "an integer of at least 1"."""
        kind = "an integer" if self.whole else "a number"
        if self.least is not None and self.most is not None:
            return f"{kind} from {self.least:g} to {self.most:g}"
        ends = []
        if self.least is not None:
            ends.append(f"of at least {self.least:g}")
        elif self.above is not None:
            ends.append(f"above {self.above:g}")
        if self.most is not None:
            ends.append(f"{'at most' if ends else 'of at most'} {self.most:g}")
        elif self.below is not None:
            ends.append(f"below {self.below:g}")
        if not ends:
            return kind if self.whole else "a finite number"
        return f"{kind} {' and '.join(ends)}"

    def check(self, **numbers: object) -> None:
        """Checks numbers, given by name; raises ValueError for a number outside of the range."""
        for name, number in numbers.items():
            if number not in self:
                allowed = f"{self} {self.unit}".strip()
                raise ValueError(f"{name} must be {allowed} (got {number!r}).")


FINITE = Range()
POSITIVE = Range(above=0)
NOT_NEGATIVE = Range(least=0)
SHARE = Range(least=0, below=1)
"""A share below 1, such as the share of examples in which an input is masked."""
WHOLE = Range(least=0, whole=True)
COUNT = Range(least=1, whole=True)
PORTS = Range(least=0, most=65535, whole=True)
"""Ports of a server; 0 takes any free port."""


def check_ordered(**pairs: Sequence[float]) -> None:
    """Raises a ValueError unless each pair, given by name, is an ordered range above 0."""
    for name, pair in pairs.items():
        if len(pair) != 2 or any(end not in POSITIVE for end in pair) or pair[0] > pair[1]:
            raise ValueError(
                f"{name} is {tuple(pair)}; allowed: (shortest, longest) with 0 < shortest <= "
                f"longest."
            )


_SKIPPED = ContextVar("value checks are skipped", default=False)


@contextmanager
def without_value_checks() -> Iterator[None]:
    """Skips checks of values in this thread, for a block; shapes and types are checked.

    To check a value the host waits for the device. Windows of a store were checked when they were
    written, and a value that is not finite ends a training by its loss.
    """
    token = _SKIPPED.set(True)
    try:
        yield
    finally:
        _SKIPPED.reset(token)


def value_checks_are_skipped() -> bool:
    """Returns whether checks of values are skipped in this thread."""
    return _SKIPPED.get()
