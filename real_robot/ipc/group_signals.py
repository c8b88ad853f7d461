"""Signals that a whole group of processes gets at once: Ctrl-C, the end of a service, a terminal that was closed.

The one in charge brakes the arms and ends the others in good order. So the others leave these
signals to it, and end when it says so or is gone.
"""

import signal
from types import FrameType
from typing import NoReturn

_ALSO_FOR_THE_GROUP = (signal.SIGTERM, signal.SIGHUP)


def leave_to_owner() -> None:
    """Lets a process that was spawned overhear them: its owner says through a pipe what is to be done."""
    for number in (signal.SIGINT, *_ALSO_FOR_THE_GROUP):
        signal.signal(number, signal.SIG_IGN)


def end_as_by_ctrl_c() -> None:
    """Makes this process, the owner, end in good order at all of them; a second one does not disturb that."""
    for number in _ALSO_FOR_THE_GROUP:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    for other in _ALSO_FOR_THE_GROUP:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
