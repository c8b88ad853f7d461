"""What is looked at before arms move, said line by line."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO


class Checklist:
    """Runs checks, shows each with its result, and goes on after a failure so that all are seen at once.

    Args:
        out: Where it is shown.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._problems: list[str] = []

    @contextmanager
    def check(self, what: str) -> Generator[Callable[[str], None], None, None]:
        """Checks one thing: a ValueError or RuntimeError within is a failure of it.

        Args:
            what: Is being checked.

        Yields:
            A function that takes what is worth knowing when all is well.
        """
        words: list[str] = []
        try:
            yield words.append
        except (ValueError, RuntimeError) as error:
            self._problems.append(f"{what}: {error}")
            self._show("FAILED", what, "")
        else:
            self._show("ok", what, " ".join(words))

    def _show(self, mark: str, what: str, words: str) -> None:
        self._out.write(f"  {mark:<7} {what}{': ' + words if words else ''}\n")
        self._out.flush()

    def demand(self) -> None:
        """Goes on only if everything was well.

        Raises:
            ValueError: With all that is wrong.
        """
        if self._problems:
            raise ValueError("Not started.\n" + "\n".join(self._problems))
