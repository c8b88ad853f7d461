"""Stopping a run by Ctrl-C or SIGTERM: it completes its step, saves its state and can continue."""

import gc
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from torch import distributed

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A run was stopped by the signal `number` and can be continued."""

    def __init__(self, number: int, steps_done: int, directory: Path) -> None:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        super().__init__(
            f"Stopped by {name} after step {steps_done}; the state is saved in {directory}. Run "
            f"the same command to continue."
        )
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends on that signal, by the convention of shells."""
        return 128 + self.number


class StopSignals:
    """Records the first stop signal of a `with` block; the second one interrupts the process.

    Outside of the main thread, where Python handles no signals, it does nothing.

    Attributes:
        received: The first signal, or 0.
    """

    def __init__(self) -> None:
        self.received = 0
        self._immediate = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Installs the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restores the signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def immediately(self) -> Iterator[None]:
        """Lets the first signal interrupt the block, for work that leaves no state to save."""
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received or self._immediate:
            self.received = self.received or number
            raise KeyboardInterrupt
        self.received = number
        logger.warning(
            "Stopping as soon as this step is done and its state is saved; a second signal stops "
            "at once."
        )


@contextmanager
def process_group() -> Iterator[None]:
    """Destroys torch's process group at the end of the block, if training in it has created one.

    A process that exits as a member of its group may be aborted by torch's threads, and `torchrun`
    then reports a failure although everything is saved. So programs that train in several processes
    call `Trainer.fit` in one such block; afterwards the group cannot be used again.

    The group is left only after success or `Stopped`, which all processes reach after the same
    step. After any other error it stays: destroying it could wait for processes that hang in it.
    """
    try:
        yield
    except Stopped:
        _leave()
        raise
    _leave()


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        # The wrapped models of Accelerate are in reference cycles, and hold the group with its
        # threads until they are collected.
        gc.collect()
        distributed.destroy_process_group()
