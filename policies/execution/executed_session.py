"""The session of an episode in execution: the executed actions of each plan, with its delay."""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.chunks.chunk_timing import beginning, periods_covered, postponed
from stringline.policies.chunks.prefix import SAME_TIME_S

KEPT = 10
_ROUNDING = 1e-6  # Of a control period: 0.1 s at 50 Hz are 5 periods, not 5 and a bit.


def periods(seconds: float, control_hz: float) -> int:
    """Returns the number of control periods that begin within a time."""
    return max(math.ceil(seconds * control_hz - _ROUNDING), 0)


class Latency:
    """Expects the longest of the latest measurements (Black et al., 2025, algorithm 1).

    The first plan of an episode takes longer, since caches are cold, and the arms wait for it
    anyway; so it counts only until there is another measurement.
    """

    def __init__(self, control_hz: float, start: int = 0) -> None:
        """Starts without measurements; `start` periods are the least until a warm measurement."""
        self._hz = control_hz
        self._start = start
        self._cold: int | None = None
        self._measured = deque[int](maxlen=KEPT)

    def add(self, seconds: float) -> int:
        """Adds a measurement and returns it in control periods."""
        steps = periods(seconds, self._hz)
        if self._cold is None:
            self._cold = steps
        else:
            self._measured.append(steps)
        return steps

    @property
    def expected(self) -> int:
        """Expected control periods of the next plan."""
        return max(self._measured) if self._measured else max(self._start, self._cold or 0)


Clock = Callable[[], float]


class PlanCombiner(Session, Protocol):
    """A session that combines its plans with previous ones."""

    def postpone(self, seconds: float) -> None:
        """Delays the last plan, since the arms waited before they followed it."""


class PassThrough:
    """A session whose plans are executed as they are."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the plan of the session."""
        return self._session.plan(observation)

    def postpone(self, seconds: float) -> None:
        """Does nothing."""


class ExecutedSession:
    """An episode whose plans determine what is executed, and when.

    While the arms wait for a plan, at the start or because the previous one has ended, it does not
    become outdated: it is delayed by their waiting time. If they move meanwhile, the past actions
    of the new plan are skipped, so each commanded action is planned for that time.

    Attributes:
        delay_steps: Control periods from the last observation until its plan is in force.
    """

    def __init__(
        self,
        combiner: PlanCombiner,
        control_hz: float,
        latency: Latency,
        *,
        execute_steps: int | None,
        stops: bool = False,
        delay_steps: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Starts the episode; see `Execution.session`.

        Args:
            combiner: The session whose plans are executed.
            control_hz: Control periods per second.
            latency: Receives the measured delays.
            execute_steps: Executed actions of a chunk; None: all.
            stops: Whether plans end after `execute_steps` actions.
            delay_steps: Control periods that plans take; None: as measured.
            clock: None: simulated time, which starts with the first plan.
        """
        self._combiner = combiner
        self._hz = control_hz
        self._latency = latency
        self._execute_steps = execute_steps
        self._stops = stops
        self._given = delay_steps
        self._clock = clock
        self._last: ActionChunk | None = None
        self.delay_steps = 0

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the actions that are executed from `delay_steps` after an observation."""
        now = float(observation["time"])
        start = time.perf_counter()
        plan = self._combiner.plan(observation)
        took = (time.perf_counter() - start) if self._clock is None else (self._clock() - now)
        plan = self._fitting(plan)
        self.delay_steps = self._delay(self._latency.add(took))
        in_force = now + (self.delay_steps / self._hz if self._clock is None else took)
        waited = in_force - (
            now if self._last is None else max(now, self._last.time[-1] + 1 / self._hz)
        )
        if waited > SAME_TIME_S:
            plan = postponed(plan, waited)
            self._combiner.postpone(waited)
        self._last = plan
        return plan

    def _delay(self, measured: int) -> int:
        if self._clock is None and self._last is None:
            return 0
        return measured if self._given is None else self._given

    def _fitting(self, plan: ActionChunk) -> ActionChunk:
        """Returns the executed part of a chunk, if it is long enough."""
        have = periods_covered(plan, float(plan.time[0]), self._hz)
        if self._stops and self._execute_steps is not None:
            if self._execute_steps > have:
                raise ValueError(
                    f"execute_steps is {self._execute_steps}; allowed: up to {have}, the actions "
                    f"of a chunk."
                )
            return beginning(plan, self._execute_steps / self._hz)
        if self._given and not self._stops:
            check_horizon(have, self._execute_steps, self._given)
        return plan


def check_horizon(chunk: int, execute_steps: int | None, delay_steps: int) -> None:
    """Raises a ValueError unless d <= s <= H - d (Black et al., 2025, arXiv 2506.07339, section 3).

    H is `chunk`, s is `execute_steps` (None: the whole chunk), and d is `delay_steps`, the control
    periods from an observation until its plan is in force. Otherwise a plan would be requested
    before the previous one arrives, or the previous one would end before.
    """
    executed = chunk if execute_steps is None else execute_steps
    if delay_steps <= executed <= chunk - delay_steps:
        return
    allowed = f"{delay_steps} to {chunk - delay_steps}" if 2 * delay_steps <= chunk else "none"
    raise ValueError(
        f"execute_steps is {executed}; allowed with a delay of {delay_steps} control periods and "
        f"chunks of {chunk} actions: {allowed}. Change execute_steps, lower delay_s to at most "
        f"{chunk // 2} control periods, or use execution=stop_and_go."
    )
