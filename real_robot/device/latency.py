"""The lateness of a loop on this machine: how long after its due time it wakes up."""

import contextlib
import gc
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.device.scheduling import SHORTEST_WITHOUT_S, request_priority
from stringline.real_robot.ipc.child_process import ChildProcess
from stringline.real_robot.ipc.group_signals import leave_to_owner
from stringline.real_robot.safety.motion_stages import STOPPED_PERIODS

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
