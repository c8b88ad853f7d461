"""Execution of chunks: the combination of plans, the executed part of each, and its delay.

Simulation, servers and the hardware bridge use the sessions of an `Execution`; this module does
not import torch. An `ExecutedSession` determines what is executed of each plan, and when.

Temporal ensembling averages the actions of several plans for the same time (Zhao et al., Learning
Fine-Grained Bimanual Manipulation with Low-Cost Hardware, RSS 2023, arXiv 2304.13705, section
IV-B): w_i = exp(-k i), where i = 0 is the oldest plan, and the weights of a time are divided by
their sum.

Real-time chunking: a new plan begins with the actions that are executed while it is made (Black,
Galliker and Levine, Real-Time Execution of Action Chunking Flow Policies, NeurIPS 2025, arXiv
2506.07339). With chunks of H actions, of which s are executed before the next observation is
planned for, and a plan that is in force d control periods after its observation, d <= s <= H - d:
the first d actions of the new plan are those of the old one, the others that the old one still
has are goals of decreasing weight, and the rest is free. Here the weight of an action is the
share by which it is moved to the old plan at every step of the sampler (`NormalisedPrefix`); in
the paper it scales a gradient.

`WithInstruction` gives a policy a fixed instruction, for worlds without instructions.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import COUNT, FINITE, NOT_NEGATIVE, unknown_name
from stringline.datasets.contract.contract import ActionKind, Contract, Observation
from stringline.datasets.contract.instructions import KEY, instruction_array
from stringline.policies.chunks.chunk import (
    SAME_TIME_S,
    ActionChunk,
    ActionPrefix,
    Policy,
    Session,
    accepts_prefix,
    actions_at,
    beginning,
    periods_covered,
    plan_with_prefix,
    postponed,
    prefix_error,
)

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


AVERAGED: tuple[ActionKind, ...] = ("joint", "gripper", "position")


class TemporalEnsemble:
    """A session whose plans are averages, action by action, of all its plans for that time.

    Plans are matched by the times of their actions, not by index; older plans are interpolated
    linearly.
    """

    def __init__(self, session: Session, contract: Contract, *, decay: float = 0.01) -> None:
        """Wraps a session.

        `decay` is k, per plan; the larger, the smaller the weight of newer plans. Below 0 older
        plans have smaller weights.
        """
        FINITE.check(decay=decay)
        check_averages(contract)
        self._session = session
        self._decay = decay
        self._plans: list[ActionChunk] = []

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the average of the new plan and previous ones, at the times of the new one."""
        new = self._session.plan(observation)
        self._plans = [
            *(old for old in self._plans if old.time[-1] >= new.time[0] - SAME_TIME_S),
            new,
        ]
        return ActionChunk(new.time, self._average(new.time))

    def postpone(self, seconds: float) -> None:
        """Delays all plans, since the arms waited."""
        self._plans = [postponed(plan, seconds) for plan in self._plans]

    def _average(self, time: NDArray[np.float64]) -> NDArray[np.float32]:
        dim = self._plans[-1].action.shape[1]
        total = np.zeros((len(time), dim))
        weights = np.zeros(len(time))
        count = np.zeros(len(time), np.int64)
        for plan in self._plans:  # The oldest first, in the order of i.
            there = (time >= plan.time[0] - SAME_TIME_S) & (time <= plan.time[-1] + SAME_TIME_S)
            weight = np.where(there, np.exp(-self._decay * count), 0.0)
            total += weight[:, None] * actions_at(plan, time)
            weights += weight
            count += there
        return (total / weights[:, None]).astype(np.float32)


def check_averages(contract: Contract) -> None:
    """Raises a ValueError if a component-wise average of the actions has no meaning."""
    for dimension in contract.action:
        if dimension.kind not in AVERAGED:
            raise ValueError(
                f"Temporal ensembling averages the components of actions, but {dimension.name!r} "
                f"is part of a {dimension.kind}. Allowed: {', '.join(AVERAGED)}. Use "
                f"execution=real_time_chunking or receding_horizon."
            )
        if dimension.mode != "absolute":
            raise ValueError(
                f"Temporal ensembling averages plans of different times, but {dimension.name!r} is "
                f"relative to the position of the arm at that time. Allowed: absolute actions."
            )


def soft_weights(fixed: int, overlap: int) -> NDArray[np.float64]:
    """Returns the weights (overlap,) of the rest of the old plan (equation 5 of the paper).

    1 for the first d = `fixed`, then c (e^c - 1) / (e - 1) with c = (overlap - i) / (overlap - d +
    1) falling from below 1 to above 0. `overlap` is H - s, the remaining actions of the old plan.
    """
    place = np.arange(overlap, dtype=np.float64)
    falling = (overlap - place) / (overlap - fixed + 1)
    return np.where(place < fixed, 1.0, falling * np.expm1(falling) / np.expm1(1.0))


class RealTimeChunking:
    """A session whose plans continue the previous ones."""

    def __init__(self, session: Session, contract: Contract, expected: Callable[[], int]) -> None:
        """Wraps a session, which supports action prefixes and has absolute actions.

        `expected` returns the expected control periods until the next plan is in force.
        """
        if not accepts_prefix(session):
            raise prefix_error(session)
        for dimension in contract.action:
            if dimension.mode != "absolute":
                raise ValueError(
                    f"Real-time chunking continues the previous plan, but {dimension.name!r} is "
                    f"relative to the position of the arm at that time. Allowed: absolute actions "
                    f"of the contract (the numbers that a network generates may be relative)."
                )
        self._session = session
        self._contract = contract
        self._expected = expected
        self._plan: ActionChunk | None = None

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns a plan that continues the previous one."""
        self._plan = self._session.plan(observation, self._commitment(float(observation["time"])))
        return self._plan

    def postpone(self, seconds: float) -> None:
        """Delays the last plan, since the arms waited."""
        self._plan = None if self._plan is None else postponed(self._plan, seconds)

    def _commitment(self, now: float) -> ActionPrefix:
        hz = self._contract.control_hz
        old = self._plan
        overlap = 0 if old is None else periods_covered(old, now, hz)
        if old is None or not overlap:
            return ActionPrefix.empty(len(self._contract.action))
        time = now + np.arange(overlap) / hz
        return ActionPrefix(
            time, actions_at(old, time), soft_weights(min(self._expected(), overlap), overlap)
        )


RECEDING = "receding_horizon"
STOPPING = "stop_and_go"
ENSEMBLE = "temporal_ensembling"
REAL_TIME = "real_time_chunking"
NAMES = (RECEDING, STOPPING, ENSEMBLE, REAL_TIME)
MEASURED = "measured"
DECAY = 0.01


@dataclass(frozen=True)
class Execution:
    """How chunks are executed; the number of executed actions, `execute_steps`, is set elsewhere.

    Attributes:
        name: `receding_horizon`: each plan replaces the previous one as soon as it arrives.
            `stop_and_go`: the same, but a plan is requested when the previous one has been
            executed, and the arms hold meanwhile. `temporal_ensembling`: plans are averaged with
            previous ones. `real_time_chunking`: plans continue the previous one.
        delay_s: In simulated time, seconds from an observation until its plan is in force, rounded
            up to control periods, or `measured`: the time that planning took. By a real clock plans
            take the time that they take, and real-time chunking expects this delay before its first
            measurement.
        decay: k of temporal ensembling, per plan; None: 0.01.
    """

    name: str = RECEDING
    delay_s: float | str = 0.0
    decay: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise unknown_name("execution", self.name, NAMES)
        late = self.delay_s
        if late != MEASURED and late not in NOT_NEGATIVE:
            raise ValueError(
                f"execution.delay_s is {late!r}; allowed: seconds from 0, or {MEASURED!r}."
            )
        if self.decay is not None and self.name != ENSEMBLE:
            raise ValueError(f"execution.decay needs {ENSEMBLE}; the execution is {self.name}.")
        if self.decay is not None:
            FINITE.check(**{"execution.decay": self.decay})

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Self:
        """Returns the execution of a choice of `configs/execution`; None: the default."""
        known = [field.name for field in fields(cls)]
        for name in settings or {}:
            if name not in known:
                raise unknown_name("setting of execution", str(name), known)
        return cls(**(settings or {}))

    def about(self) -> dict[str, Any]:
        """Returns the settings that results depend on, as plain JSON; empty for the default."""
        return (
            {}
            if self == Execution()
            else {"execution": {k: v for k, v in asdict(self).items() if v is not None}}
        )

    def overrides(self) -> dict[str, Any]:
        """Returns the same as overrides of a command line."""
        settings: dict[str, Any] = self.about().get("execution", {})
        return {
            "execution" if key == "name" else f"execution.{key}": value
            for key, value in settings.items()
        }

    def described(self, execute_steps: int | None) -> str:
        """Returns a short description."""
        words = [
            "whole chunks"
            if execute_steps is None
            else f"{execute_steps} actions between two plans"
        ]
        if self.name != RECEDING:
            words.append(self.name.replace("_", " "))
        if self.delay_s != 0:
            late = (
                "as late as measured"
                if isinstance(self.delay_s, str)
                else f"{self.delay_s:g} s late"
            )
            words.append(f"plans in force {late}")
        return ", ".join(words if self.decay is None else [*words, f"decay {self.decay:g}"])

    @property
    def on_server(self) -> bool:
        """Whether a server can apply it for its clients; see `CombiningPolicy`."""
        if self.name == REAL_TIME:
            return self.delay_s != MEASURED
        return self.name != STOPPING and self.delay_s == 0

    def delay_steps(self, control_hz: float) -> int | None:
        """Returns the delay in control periods; None: it is measured."""
        return None if isinstance(self.delay_s, str) else periods(self.delay_s, control_hz)

    def replan_after(self, execute_steps: int | None) -> int | None:
        """Returns the control periods between two planned observations; None: a whole plan."""
        return None if self.name == STOPPING else execute_steps

    def session(
        self, policy: Policy, seed: int, *, execute_steps: int | None, clock: Clock | None = None
    ) -> ExecutedSession:
        """Starts an episode of a policy; see `Policy.session`.

        Args:
            policy: The policy that plans.
            seed: Seed of the session.
            execute_steps: Executed actions of a chunk; None: all.
            clock: Clock of the observations in real time; None: simulated time.

        Raises:
            ValueError: The policy does not support this execution, or `execute_steps` is out of
                range.
        """
        if execute_steps is not None and execute_steps not in COUNT:
            raise ValueError(
                f"execute_steps is {execute_steps}; allowed: 1 and above, or null for whole chunks."
            )
        hz = policy.contract.control_hz
        delay = self.delay_steps(hz)
        latency = Latency(hz, delay or 0)
        given = delay if clock is None else None
        combiner = self.combined(
            policy.session(seed),
            policy.contract,
            lambda: latency.expected if given is None else given,
        )
        return ExecutedSession(
            combiner,
            hz,
            latency,
            execute_steps=execute_steps,
            stops=self.name == STOPPING,
            delay_steps=given,
            clock=clock,
        )

    def combined(
        self, session: Session, contract: Contract, expected: Callable[[], int]
    ) -> PlanCombiner:
        """Returns a session whose plans are combined with previous ones.

        `expected` returns the expected control periods until the next plan is in force.
        """
        if self.name == ENSEMBLE:
            return TemporalEnsemble(
                session, contract, decay=DECAY if self.decay is None else self.decay
            )
        if self.name == REAL_TIME:
            return RealTimeChunking(session, contract, expected)
        return PassThrough(session)


class CombiningPolicy:
    """A policy that combines its plans on the server, invisible to its clients."""

    def __init__(self, policy: Policy, execution: Execution) -> None:
        """Wraps a policy; a ValueError states settings that only the executing side can apply."""
        delay = execution.delay_steps(policy.contract.control_hz)
        if execution.name == STOPPING or (execution.name != REAL_TIME and execution.delay_s != 0):
            raise ValueError(
                "A server cannot apply stop_and_go or delay_s: when plans are requested and in "
                "force is decided where they are executed."
            )
        if execution.name == REAL_TIME and delay is None:
            raise ValueError(
                "A server cannot measure when its plans arrive: set execution.delay_s in seconds, "
                "or use execution=real_time_chunking on the client."
            )
        self._policy = policy
        self._execution = execution
        self._delay = delay or 0

    @property
    def contract(self) -> Contract:
        """The contract of the policy."""
        return self._policy.contract

    def session(self, seed: int) -> Session:
        """Starts an episode of the policy."""
        return self._execution.combined(
            self._policy.session(seed), self.contract, lambda: self._delay
        )


class WithInstruction:
    """Adds one instruction to every observation of a local or remote policy."""

    def __init__(self, policy: Policy, text: str) -> None:
        """Wraps a policy; empty: no instruction.

        A ValueError is raised if a local policy rejects the instruction; a remote one reports it
        when it plans.
        """
        self._policy = policy
        self._text = text
        if (check := getattr(policy, "check_instruction", None)) is not None:
            check(text)

    @property
    def contract(self) -> Contract:
        """The contract of the policy."""
        return self._policy.contract

    def session(self, seed: int) -> Session:
        """Starts an episode of the policy."""
        return _InstructedSession(self._policy.session(seed), self._text)

    def completed(self, observation: Observation) -> Observation:
        """Returns an observation as the policy receives it."""
        return {KEY: instruction_array(self._text), **observation}


class _InstructedSession:
    """One episode; it supports action prefixes if the policy's session does."""

    def __init__(self, session: Session, text: str) -> None:
        self._session = session
        self._instruction = instruction_array(text)
        self.accepts_prefix = accepts_prefix(session)

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        """Plans; an instruction in the observation takes precedence."""
        return plan_with_prefix(self._session, {KEY: self._instruction, **observation}, prefix)
