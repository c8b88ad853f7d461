"""Execution of chunks: the combination of plans, the executed part of each, and its delay.

Simulation, servers and the hardware bridge use the sessions of an `Execution`; this module does not
import torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from stringline.datasets.contract.argument_checks import COUNT, FINITE, NOT_NEGATIVE, unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.policies.chunks.chunk import Policy, Session
from stringline.policies.execution.executed_session import (
    Clock,
    ExecutedSession,
    Latency,
    PassThrough,
    PlanCombiner,
    periods,
)
from stringline.policies.execution.real_time_chunking import RealTimeChunking
from stringline.policies.execution.temporal_ensemble import TemporalEnsemble

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
