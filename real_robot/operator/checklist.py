"""The checks before arms move, reported line by line."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, Self, TextIO, TypeVar

T = TypeVar("T")


class Checklist:
    """Runs checks and reports their results; after a failure it continues with the next check.

    Args:
        out: Stream of the report; if None, standard output.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._problems: list[str] = []

    @contextmanager
    def check(self, what: str) -> Generator[Callable[[str], None], None, None]:
        """Runs one check: a ValueError or RuntimeError in the block is a failure.

        Yields:
            A function that takes details to report if the check passes.
        """
        details: list[str] = []
        try:
            yield details.append
        except (ValueError, RuntimeError) as error:
            self._problems.append(f"{what}: {error}")
            self._report("FAILED", what, "")
        else:
            self._report("ok", what, " ".join(details))

    def result(
        self, what: str, action: Callable[[], T], describe: Callable[[T], str] = lambda _: ""
    ) -> "CheckResult[T]":
        """Runs one check that returns a value, of which `describe` returns details to report."""
        return CheckResult[T](self).run(what, action, describe)

    def check_passed(self) -> None:
        """Checks that no check has failed so far.

        Raises:
            ValueError: All failures.
        """
        if self._problems:
            raise ValueError("Not started.\n" + "\n".join(self._problems))

    def _report(self, mark: str, what: str, details: str) -> None:
        self._out.write(f"  {mark:<7} {what}{': ' + details if details else ''}\n")
        self._out.flush()


class StrictChecklist(Checklist):
    """A checklist without a report that lets the first error pass."""

    @contextmanager
    def check(self, what: str) -> Generator[Callable[[str], None], None, None]:
        """Runs one check."""
        yield lambda _: None


class CheckResult(Generic[T]):
    """The value of a check, which may have failed."""

    def __init__(self, checklist: Checklist) -> None:
        self._checklist = checklist
        self._values: list[T] = []

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return bool(self._values)

    @property
    def value(self) -> T:
        """The value.

        Raises:
            ValueError: The check failed; names all failed checks of its list.
        """
        if not self._values:
            self._checklist.check_passed()
        return self._values[0]

    def run(
        self, what: str, action: Callable[[], T], describe: Callable[[T], str] = lambda _: ""
    ) -> Self:
        """Runs the check, see `Checklist.result`."""
        with self._checklist.check(what) as note:
            value = action()
            self._values = [value]
            note(describe(value))
        return self
