"""Ctrl-C and SIGTERM: a run that is asked to stop ends its step, keeps its state, and says how it goes on."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, and can be continued.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int, steps_done: int, directory: Path) -> None:
        """Says what is kept and where."""
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        super().__init__(
            f"Stopped by {name} after step {steps_done}; all is kept in {directory}. Run the same "
            f"command to continue."
        )
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended on that signal."""
        return 128 + self.number


class StopSignals:
    """Remembers that a stop was asked for until there is time for it; asked twice, the process stops at once.

    Used in a `with` block. Outside the main thread, where Python handles no signals, nothing is
    caught.

    Attributes:
        asked: The signal that came, or 0.
    """

    def __init__(self) -> None:
        """Has seen nothing yet."""
        self.asked = 0
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Takes the signals over."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While the block runs, nothing is to be kept, and a signal interrupts it."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked or self._at_once:
            self.asked = self.asked or number
            raise KeyboardInterrupt
        self.asked = number
        logger.warning(
            "Stopping when this step is done and its state is kept; once more, and it stops at "
            "once."
        )
