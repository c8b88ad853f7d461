"""Signals to a whole group of processes: Ctrl-C, the stop of a service, a closed terminal.

The owner brakes the arms and ends its child processes in order. So the children ignore these
signals, and end when the owner requests it or disappears.
"""

import signal
from types import FrameType
from typing import NoReturn

_ALSO_FOR_THE_GROUP = (signal.SIGTERM, signal.SIGHUP)


def leave_to_owner() -> None:
    """Ignores the signals in a spawned process, whose owner sends requests through a pipe."""
    for number in (signal.SIGINT, *_ALSO_FOR_THE_GROUP):
        signal.signal(number, signal.SIG_IGN)


def end_as_by_ctrl_c() -> None:
    """Raises KeyboardInterrupt in this process, the owner, at the first of the signals."""
    for number in _ALSO_FOR_THE_GROUP:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    for other in _ALSO_FOR_THE_GROUP:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
