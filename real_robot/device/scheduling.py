"""The real-time priority of a device process (Linux: policy SCHED_FIFO)."""

import logging
import os
from enum import Enum
from pathlib import Path

log = logging.getLogger(__name__)

SHORTEST_WITHOUT_S = 0.01
_PRESSURE = Path("/proc/pressure/cpu")  # Documentation/accounting/psi.rst of the kernel.
_BUSY_SHARE = 0.4  # A machine whose processors are all in use, and no more, waits for less.
# Above all ordinary programs, and below the interrupt threads of a PREEMPT_RT kernel (50), which
# deliver the messages.
_FIFO_PRIORITY = 10
GRANT = (
    'Grant it: echo "$USER - rtprio 20" | sudo tee /etc/security/limits.d/stringline.conf, then '
    "log out and in again. docs/real-time.md describes services and containers."
)


class Priority(Enum):
    """Whether a device process needs real-time priority."""

    REQUIRED = "required"  # Without it, the process refuses to start.
    PREFERRED = "preferred"  # Without it, the process warns.
    NONE = "none"  # It is not requested.

    @classmethod
    def of(cls, period_s: float) -> "Priority":
        """Returns the need of real arms: below 10 ms, priority is required."""
        return cls.REQUIRED if period_s < SHORTEST_WITHOUT_S else cls.PREFERRED


def request_priority() -> str:
    """Gives this thread real-time priority; returns the reason of a refusal, or an empty string."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_FIFO_PRIORITY))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check_priority(period_s: float) -> None:
    """Checks that this process may have real-time priority, and keeps its present priority.

    Raises:
        ValueError: The system refuses it; the message has the command that grants it.
    """
    policy = os.sched_getscheduler(0)
    parameters = os.sched_getparam(0)
    if refusal := request_priority():
        raise ValueError(
            f"cycles of {1e3 * period_s:g} ms need real-time priority, which the system refuses "
            f"({refusal}); without it, allowed are 10 ms and more. {GRANT}"
        )
    os.sched_setscheduler(0, policy, parameters)


def busy_machine() -> str:
    """Returns a sentence if more programs want to run than there are processors, or nothing.

    The load of a minute tells little about a load that has just begun; the pressure that Linux
    measures over ten seconds does.
    """
    waiting = _waiting_share()
    load = os.getloadavg()[0]
    processors = len(os.sched_getaffinity(0))
    if waiting > _BUSY_SHARE and not load > processors:
        return (
            f"This computer is busy, which delays messages: in the last ten seconds programs "
            f"waited for a processor in {waiting:.0%} of the time. End other programs, or see "
            f"docs/real-time.md."
        )
    if not load > processors:
        return ""
    return (
        f"This computer is busy, which delays messages: in the last minute {load:.1f} programs "
        f"wanted to run on {processors} processors. End other programs, or see docs/real-time.md."
    )


def _waiting_share() -> float:
    """Returns the share of the last ten seconds in which a program waited; 0 if it is unknown."""
    try:
        first = _PRESSURE.read_text().split()
        return float(first[1].removeprefix("avg10=")) / 100.0
    except (OSError, ValueError, IndexError):
        return 0.0


def prefer_priority(period_s: float) -> None:
    """Gives this thread real-time priority; logs a warning if the system refuses it."""
    if refusal := request_priority():
        log.warning(
            "No real-time priority (%s): cycles of %g ms may be late on a busy machine. %s",
            refusal,
            1e3 * period_s,
            GRANT,
        )
