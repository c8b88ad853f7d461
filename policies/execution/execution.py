"""Execution of chunks: the combination of plans, the executed part of each, and its delay.

A `ChunkExecutor` is an episode of a policy in simulation, on a server and on a robot: it determines
what is executed of each plan, and when, by the settings of an `Execution`. This module does not
import torch.

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
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import COUNT, FINITE, NOT_NEGATIVE, unknown_name
from stringline.datasets.contract.contract import (
    KEY,
    ActionKind,
    Contract,
    Observation,
    instruction_array,
)
from stringline.policies.chunks.chunk import (
    SAME_TIME_S,
    ActionChunk,
    ActionPrefix,
    BatchPolicy,
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
        name: Combination of plans; on a command line, execution=NAME also sets its options.
            `receding_horizon`: each plan replaces the previous one as soon as it arrives.
            `stop_and_go`: the same, but a plan is requested when the previous one has been
            executed, and the arms hold meanwhile. `temporal_ensembling`: plans are averaged with
            previous ones. `real_time_chunking`: plans continue the previous one.
        delay_s: Seconds from an observation until its plan is in force, in simulated time, rounded
            up to control periods; or `measured`: the time that planning took. By a real clock plans
            take the time that they take, and real-time chunking expects this delay before its first
            measurement.
        decay: k of temporal ensembling: the i-th oldest plan has the weight exp(-k i); if None,
            0.01.
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
        """Returns the execution of a choice of `configs/execution`; None means the default."""
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
        """Returns the delay in control periods; None if it is measured."""
        return None if isinstance(self.delay_s, str) else periods(self.delay_s, control_hz)

    def replan_after(self, execute_steps: int | None) -> int | None:
        """Returns the control periods between two planned observations; None means a whole plan."""
        return None if self.name == STOPPING else execute_steps


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


class ChunkExecutor:
    """One episode of a policy: how its chunks become actions.

    `Execution` describes the modes. In real-time chunking, the policy receives the rest of the last
    plan as a prefix; in temporal ensembling, its chunk is averaged with previous ones; in stop and
    go, the plan ends where the next one is requested. Then its delay is determined.

    While the arms wait for a plan, at the start or because the previous one has ended, it does not
    become outdated: it is delayed by their waiting time. If they move meanwhile, the past actions
    of the new plan are skipped, so each commanded action is planned for that time.

    Attributes:
        session: The session of the policy.
        delay_steps: Control periods from the last observation until its plan is in force.
    """

    def __init__(
        self,
        policy: Policy,
        seed: int,
        execution: Execution,
        *,
        execute_steps: int | None,
        instruction: str | None = None,
        clock: Clock | None = None,
        timed: bool = True,
    ) -> None:
        """Starts the episode.

        Args:
            policy: The policy that plans.
            seed: Seed of its session.
            execution: How its chunks are executed.
            execute_steps: Executed actions of a chunk; if None, all.
            instruction: Added to observations that have none; if None, none is added.
            clock: Clock of the observations in real time; if None, simulated time, which starts
                with the first plan.
            timed: False: plans are only combined, as on a server, whose clients decide when they
                are in force.

        Raises:
            ValueError: The policy does not support this execution or this instruction, or
                `execute_steps` is out of range.
        """
        if execute_steps is not None and execute_steps not in COUNT:
            raise ValueError(
                f"execute_steps is {execute_steps}; allowed: 1 and above, or null for whole chunks."
            )
        if instruction is not None:
            check_instruction(policy, instruction)
        self.session = policy.session(seed)
        if execution.name == ENSEMBLE:
            check_averages(policy.contract)
        if execution.name == REAL_TIME:
            check_continuation(self.session, policy.contract)
        self.delay_steps = 0
        self._hz = policy.contract.control_hz
        self._action_dim = len(policy.contract.action)
        self._execution = execution
        self._execute_steps = execute_steps
        self._instruction = None if instruction is None else instruction_array(instruction)
        self._clock = clock
        self._timed = timed
        delay = execution.delay_steps(self._hz)
        self._latency = Latency(self._hz, delay or 0)
        # By a real clock, plans take the time that they take.
        self._fixed_delay = delay if clock is None else None
        self._followed: ActionChunk | None = None
        self._ensemble: list[ActionChunk] = []

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the actions that are executed from `delay_steps` after an observation."""
        start = time.perf_counter()
        observation = self.add_instruction(observation)
        chunk = plan_with_prefix(self.session, observation, self.prefix(observation))
        return self.execute(chunk, observation, start)

    def add_instruction(self, observation: Observation) -> Observation:
        """Returns an observation as the policy receives it; its own instruction has precedence."""
        return observation if self._instruction is None else {KEY: self._instruction, **observation}

    def prefix(self, observation: Observation) -> ActionPrefix | None:
        """Returns what the next chunk continues: in real-time chunking, the rest of the last plan.

        If None, every chunk is independent of the previous ones.
        """
        if self._execution.name != REAL_TIME:
            return None
        now = float(observation["time"])
        old = self._followed
        overlap = 0 if old is None else periods_covered(old, now, self._hz)
        if old is None or not overlap:
            return ActionPrefix.empty(self._action_dim)
        expected = self._latency.expected if self._fixed_delay is None else self._fixed_delay
        due = now + np.arange(overlap) / self._hz
        return ActionPrefix(
            due, actions_at(old, due), soft_weights(min(expected, overlap), overlap)
        )

    def execute(self, chunk: ActionChunk, observation: Observation, start: float) -> ActionChunk:
        """Returns what is executed of the chunk that the policy planned for an observation.

        Args:
            chunk: The chunk.
            observation: The observation.
            start: Reading of `time.perf_counter` when planning began.
        """
        plan = chunk
        if self._execution.name == ENSEMBLE:
            begins = chunk.time[0] - SAME_TIME_S
            self._ensemble = [*(old for old in self._ensemble if old.time[-1] >= begins), chunk]
            plan = average_plan(self._ensemble, self._execution.decay)
        if self._timed:
            now = float(observation["time"])
            took = time.perf_counter() - start if self._clock is None else self._clock() - now
            plan = self._delay(self._executed_part(plan), now, took)
        self._followed = plan
        return plan

    def _executed_part(self, plan: ActionChunk) -> ActionChunk:
        """Returns the part until the next plan is requested, if the arms stop there, or all.

        Raises:
            ValueError: The plan is too short.
        """
        covered = periods_covered(plan, float(plan.time[0]), self._hz)
        steps = self._execute_steps
        if self._execution.name == STOPPING and steps is not None:
            if steps > covered:
                raise ValueError(
                    f"execute_steps is {steps}; allowed: up to {covered}, the actions of a chunk."
                )
            return beginning(plan, steps / self._hz)
        if self._execution.name != STOPPING and self._fixed_delay:
            check_horizon(covered, steps, self._fixed_delay)
        return plan

    def _delay(self, plan: ActionChunk, now: float, took: float) -> ActionChunk:
        """Returns a plan for an observation at `now`, delayed by the time for which the arms wait.

        `took` is the duration of planning in seconds; plans of an ensemble are delayed as well.
        """
        old = self._followed
        measured = self._latency.add(took)
        self.delay_steps = measured if self._fixed_delay is None else self._fixed_delay
        if self._clock is None and old is None:
            self.delay_steps = 0
        in_force = now + (self.delay_steps / self._hz if self._clock is None else took)
        moved_until = now if old is None else max(now, float(old.time[-1]) + 1 / self._hz)
        waited = in_force - moved_until
        if waited <= SAME_TIME_S:
            return plan
        self._ensemble = [postponed(each, waited) for each in self._ensemble]
        return postponed(plan, waited)


def plan_batch(
    policy: Policy, executors: Sequence[ChunkExecutor], observations: Sequence[Observation]
) -> list[ActionChunk]:
    """Plans for one observation of each executor of a policy, all at once if it can.

    Returns:
        What `ChunkExecutor.plan` returns; rounding depends on the number of observations.
    """
    if len(executors) == 1 or not isinstance(policy, BatchPolicy):
        return [each.plan(seen) for each, seen in zip(executors, observations, strict=True)]
    start = time.perf_counter()
    received = [
        each.add_instruction(seen) for each, seen in zip(executors, observations, strict=True)
    ]
    chunks = policy.plan_batch(
        [each.session for each in executors],
        received,
        [each.prefix(seen) for each, seen in zip(executors, received, strict=True)],
    )
    return [
        each.execute(chunk, seen, start)
        for each, chunk, seen in zip(executors, chunks, received, strict=True)
    ]


def check_plan_batch(policy: Policy, size: int) -> None:
    """Raises a ValueError if a policy cannot plan for `size` observations at once."""
    COUNT.check(plan_batch=size)
    if size > 1 and not isinstance(policy, BatchPolicy):
        raise ValueError(
            f"plan_batch is {size}, but {type(policy).__name__} answers one observation at a time, "
            f"as policies on servers do; allowed: 1, or a checkpoint of this machine."
        )


def check_instruction(policy: Policy, text: str) -> None:
    """Raises a ValueError if a local policy rejects an instruction.

    A policy on a server reports it when it plans.
    """
    if (check := getattr(policy, "check_instruction", None)) is not None:
        check(text)


def check_continuation(session: Session, contract: Contract) -> None:
    """Raises a ValueError unless a session supports prefixes and the actions are absolute."""
    if not accepts_prefix(session):
        raise prefix_error(session)
    for dimension in contract.action:
        if dimension.mode != "absolute":
            raise ValueError(
                f"Real-time chunking continues the previous plan, but {dimension.name!r} is "
                f"relative to the position of the arm at that time. Allowed: absolute actions "
                f"of the contract (the numbers that a network generates may be relative)."
            )


def check_horizon(chunk: int, execute_steps: int | None, delay_steps: int) -> None:
    """Raises a ValueError unless d <= s <= H - d (Black et al., 2025, arXiv 2506.07339, section 3).

    H is `chunk`, s is `execute_steps` (if None, the whole chunk), and d is `delay_steps`, the
    control periods from an observation until its plan is in force. Otherwise a plan would be
    requested before the previous one arrives, or the previous one would end before.
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


def average_plan(plans: Sequence[ActionChunk], decay: float | None = None) -> ActionChunk:
    """Returns the average of plans, action by action, at the times of the newest.

    Plans are matched by the times of their actions, not by index; older ones are interpolated
    linearly.

    Args:
        plans: The oldest first, in the order of i.
        decay: k, per plan; the larger, the smaller the weight of newer plans. Below 0 older plans
            have smaller weights. If None, 0.01.
    """
    k = DECAY if decay is None else decay
    due = plans[-1].time
    total = np.zeros(plans[-1].action.shape)
    weights = np.zeros(len(due))
    count = np.zeros(len(due), np.int64)
    for plan in plans:
        there = (due >= plan.time[0] - SAME_TIME_S) & (due <= plan.time[-1] + SAME_TIME_S)
        weight = np.where(there, np.exp(-k * count), 0.0)
        total += weight[:, None] * actions_at(plan, due)
        weights += weight
        count += there
    return ActionChunk(due, (total / weights[:, None]).astype(np.float32))


AVERAGED: tuple[ActionKind, ...] = ("joint", "gripper", "position")


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

    @property
    def contract(self) -> Contract:
        """The contract of the policy."""
        return self._policy.contract

    def session(self, seed: int) -> Session:
        """Starts an episode of the policy."""
        return ChunkExecutor(self._policy, seed, self._execution, execute_steps=None, timed=False)
