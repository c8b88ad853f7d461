"""The session of an episode in execution: which actions of which plan are executed, with the delay of planning."""

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
    """Returns how many control periods begin before something has come that takes so long."""
    return max(math.ceil(seconds * control_hz - _ROUNDING), 0)


class Latency:
    """Expects the longest of the latest measurements (Black et al., 2025, algorithm 1).

    The first answer of an episode takes longer, since everything is cold, and the arms wait for it
    anyway; so it counts only until there is another one.
    """

    def __init__(self, control_hz: float, start: int = 0) -> None:
        """Nothing is measured yet.

        Args:
            control_hz: Control periods per second.
            start: Control periods to expect at least until something warm is measured.
        """
        self._hz = control_hz
        self._start = start
        self._cold: int | None = None
        self._measured = deque[int](maxlen=KEPT)

    def add(self, seconds: float) -> int:
        """Takes a measurement and returns it in control periods."""
        steps = periods(seconds, self._hz)
        if self._cold is None:
            self._cold = steps
        else:
            self._measured.append(steps)
        return steps

    @property
    def expected(self) -> int:
        """Control periods to expect of the next plan."""
        return max(self._measured) if self._measured else max(self._start, self._cold or 0)


Clock = Callable[[], float]


class Blend(Session, Protocol):
    """A session that minds its plans so far."""

    def postpone(self, seconds: float) -> None:
        """Takes note that the arms waited before they began to follow the last plan, which is now due that much later."""


class Plain:
    """A session whose plans are taken as they are."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers."""
        return self._session.plan(observation)

    def postpone(self, seconds: float) -> None:
        """Minds nothing."""


class ExecutedSession:
    """An episode whose plans say what is executed, and from when on.

    While the arms wait for a plan, because it is the first one or because the one before has run
    out, it does not go stale: it is due as much later as they waited. Where they go on meanwhile,
    what has become past of the new plan is skipped; so the arms are only ever sent to where a plan
    wants them at that time.

    Attributes:
        delay_steps: Control periods from the last observation until its plan is in force.
    """

    def __init__(
        self,
        blend: Blend,
        control_hz: float,
        latency: Latency,
        *,
        execute_steps: int | None,
        stops: bool = False,
        delay_steps: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Begins; see `Execution.session`.

        Args:
            blend: Whose plans are executed.
            control_hz: Control periods per second.
            latency: Gets what is measured.
            execute_steps: Actions of a chunk that are executed; None: all of them.
            stops: Whether plans end after so many actions.
            delay_steps: Control periods that plans take; None: as long as they took.
            clock: Of the observations; None: time is simulated, and does not begin before the first
                plan.
        """
        self._blend = blend
        self._hz = control_hz
        self._latency = latency
        self._execute_steps = execute_steps
        self._stops = stops
        self._given = delay_steps
        self._clock = clock
        self._last: ActionChunk | None = None
        self.delay_steps = 0

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers an observation with what is executed `delay_steps` after it.

        Raises:
            ValueError: The chunk is too short for what is to be executed of it.
        """
        now = float(observation["time"])
        start = time.perf_counter()
        plan = self._blend.plan(observation)
        took = (time.perf_counter() - start) if self._clock is None else (self._clock() - now)
        plan = self._fitting(plan)
        self.delay_steps = self._delay(self._latency.add(took))
        in_force = now + (self.delay_steps / self._hz if self._clock is None else took)
        waited = in_force - (
            now if self._last is None else max(now, self._last.time[-1] + 1 / self._hz)
        )
        if waited > SAME_TIME_S:
            plan = postponed(plan, waited)
            self._blend.postpone(waited)
        self._last = plan
        return plan

    def _delay(self, measured: int) -> int:
        if self._clock is None and self._last is None:
            return 0
        return measured if self._given is None else self._given

    def _fitting(self, plan: ActionChunk) -> ActionChunk:
        """Returns what is executed of a chunk, if there is enough of it."""
        have = periods_covered(plan, float(plan.time[0]), self._hz)
        if self._stops and self._execute_steps is not None:
            if self._execute_steps > have:
                raise ValueError(
                    f"A chunk of {have} actions was planned; execute_steps asks for "
                    f"{self._execute_steps} of them. "
                    "Lower execute_steps."
                )
            return beginning(plan, self._execute_steps / self._hz)
        if self._given and not self._stops:
            check_horizon(have, self._execute_steps, self._given)
        return plan


def check_horizon(chunk: int, execute_steps: int | None, delay_steps: int) -> None:
    """Refuses plans that come too late: d <= s <= H - d (Black et al., 2025, arXiv 2506.07339, section 3).

    Args:
        chunk: H, actions of a chunk.
        execute_steps: s, control periods between two observations that are planned for; None: all
            of the chunk.
        delay_steps: d, control periods from an observation until its plan is in force.

    Raises:
        ValueError: A plan would be asked for before the one before is there, or the one before
            would run out.
    """
    executed = chunk if execute_steps is None else execute_steps
    if delay_steps <= executed <= chunk - delay_steps:
        return
    allowed = f"{delay_steps} to {chunk - delay_steps}" if 2 * delay_steps <= chunk else "none"
    raise ValueError(
        f"A plan is in force {delay_steps} control periods after its observation, and "
        f"execute_steps asks for the next one "
        f"after {executed}; with chunks of {chunk} actions allowed: {allowed}. Change "
        f"execute_steps, lower delay_s to "
        f"at most {chunk // 2} control periods, or use execution=stop_and_go."
    )
