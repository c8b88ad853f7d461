"""The real-time priority of a device process (Linux: policy SCHED_FIFO), and the lateness of loops.

The lateness of a loop on this machine is how long after its due time it wakes up.
"""

import contextlib
import gc
import logging
import os
import time
from dataclasses import dataclass
from enum import Enum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.ipc.child_process import ChildProcess, leave_to_owner
from stringline.real_robot.safety.motion_stages import STOPPED_PERIODS

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


GRID_S = 1e-3
PERIODS_S = (0.001, 0.002, 0.005, 0.01, 0.02)
# The other half of a period remains for the work of the cycle.
_LATE_PERIODS = 0.5
_LATE_SHARE = 1e-3
RULE = (
    f"at most {_LATE_SHARE:.1%} of the cycles begin later than half a period, and none so late "
    "that the arms would hold"
)
_END_TIMEOUT_S = 0.5


@dataclass(frozen=True, eq=False)
class Lateness:
    """Wake-up times of a loop that was due every millisecond.

    Attributes:
        seconds: (N,) time from each due time to the next wake-up. A stop of 10 ms is ten entries,
            as it delays a loop of any period in proportion to the time that it takes.
        refusal: Reason why the loop had no real-time priority; empty if it had.
    """

    seconds: Vector
    refusal: str

    def quantile(self, share: float) -> float:
        """Returns the lateness in seconds that this share of due times does not exceed."""
        return float(np.quantile(self.seconds, share, method="higher"))

    def share_later(self, than_s: float) -> float:
        """Returns the share of due times after which the loop woke up later than this."""
        return float((self.seconds > than_s).mean())

    def bears(self, period_s: float) -> bool:
        """Returns whether a device process can have this period, by `RULE`.

        The arms hold if a cycle begins more than `STOPPED_PERIODS` after the one before. Periods
        below 10 ms also need real-time priority.
        """
        longest = (STOPPED_PERIODS - 1.0) * period_s
        return (
            self.share_later(_LATE_PERIODS * period_s) <= _LATE_SHARE
            and bool(self.seconds.max() <= longest)
            and not (self.refusal and period_s < SHORTEST_WITHOUT_S)
        )

    @property
    def shortest_period_s(self) -> float | None:
        """Shortest of `PERIODS_S` that this machine bears; None if it bears none."""
        return next((period for period in PERIODS_S if self.bears(period)), None)


class LatencyMeasurement:
    """Measures the lateness in a process with the scheduling of a device process.

    A context manager that ends the process.

    Args:
        seconds: Duration.
    """

    def __init__(self, seconds: float) -> None:
        self._child = ChildProcess(
            _run, (seconds,), Pipe(), name="stringline latency", end_timeout_s=_END_TIMEOUT_S
        )

    def __enter__(self) -> "LatencyMeasurement":
        self._child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def result(self, timeout_s: float) -> Lateness | None:
        """Waits and returns the result, or None if the measurement is not over.

        Raises:
            RuntimeError: The process died.
        """
        channel = self._child.channel
        if not channel.poll(timeout_s):
            return None
        try:
            refusal = channel.recv_bytes().decode()
            return Lateness(np.frombuffer(channel.recv_bytes()), refusal)
        except EOFError:
            raise RuntimeError("The measurement died before its end.") from None


def _run(seconds: float, connection: Connection) -> None:
    leave_to_owner()
    gc.collect()
    gc.freeze()
    gc.disable()
    refusal = request_priority()
    late = np.zeros(max(1, round(seconds / GRID_S)))
    record_lateness(late)
    with contextlib.suppress(OSError):  # The owner has ended.
        connection.send_bytes(refusal.encode())
        connection.send_bytes(late.tobytes())


def record_lateness(late: Vector) -> None:
    """Sleeps until each due time, and stores the lateness of all that are over."""
    start = time.monotonic() + GRID_S
    place = 0
    while place < len(late):
        time.sleep(max(0.0, start + place * GRID_S - time.monotonic()))
        now = time.monotonic()
        while place < len(late) and (after := now - (start + place * GRID_S)) >= 0.0:
            late[place] = after
            place += 1
