"""Signals to a whole group of processes: keys of a terminal, the stop of a service, a hang-up.

The owner brakes the arms and ends its child processes in order. So the children ignore these
signals, and end when the owner requests it or disappears. Of the signals that stop a group the
owner alone stops: its heartbeat is missing then, and the device process holds the arms.
"""

import signal
from types import FrameType
from typing import NoReturn

# Python has a handler for SIGINT. A terminal sends SIGQUIT at Ctrl-Backslash.
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A terminal sends SIGTSTP at Ctrl-Z; the others to a group in the background that uses it.
_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def leave_to_owner() -> None:
    """Ignores the signals in a spawned process, whose owner sends requests through a pipe."""
    for number in (signal.SIGINT, *_ENDS, *_STOPS):
        signal.signal(number, signal.SIG_IGN)


def end_as_by_ctrl_c() -> None:
    """Raises KeyboardInterrupt in this process, the owner, at the first signal to end."""
    for number in _ENDS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    for other in _ENDS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
