"""How the chunks of a policy become actions: what plans are blended with, how much of each is executed, and from when on.

Simulation, servers and the bridge take an `Execution` and ask its sessions; this module imports
without torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from stringline.datasets.contract.arguments import COUNT, FINITE, NOT_NEGATIVE, unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.policies.chunks.chunk import Policy, Session
from stringline.policies.execution.executed_session import (
    Blend,
    Clock,
    ExecutedSession,
    Latency,
    Plain,
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
    """What is done with chunks; how many of their actions are executed, `execute_steps`, is said beside it.

    Attributes:
        name: `receding_horizon`: each plan replaces the one before as soon as it is there.
            `stop_and_go`: the same, but a plan is asked for when the one before has been carried
            out, and the arms hold meanwhile. `temporal_ensembling`: plans are averaged with those
            before them. `real_time_chunking`: plans go on from the one before.
        delay_s: In simulated time, seconds from an observation until the plan that answers it is in
            force, rounded up to control periods, or `measured`: as long as the answer took. By the
            clock plans take as long as they take, and this is what real-time chunking expects
            before it has measured anything.
        decay: k of temporal ensembling, per plan; None takes 0.01.
    """

    name: str = RECEDING
    delay_s: float | str = 0.0
    decay: float | None = None

    def __post_init__(self) -> None:
        """Refuses names and numbers that mean nothing.

        Raises:
            ValueError: There is no such execution, the delay is no time, or the setting is one of
                another execution.
        """
        if self.name not in NAMES:
            raise unknown_name("execution", self.name, NAMES)
        late = self.delay_s
        if late != MEASURED and late not in NOT_NEGATIVE:
            raise ValueError(
                f"execution.delay_s is {late!r}; allowed: seconds from 0 on, or {MEASURED!r}."
            )
        if self.decay is not None and self.name != ENSEMBLE:
            raise ValueError(f"execution.decay is for {ENSEMBLE}; the execution is {self.name}.")
        if self.decay is not None:
            FINITE.check(**{"execution.decay": self.decay})

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Self:
        """Returns the execution of a choice of `configs/execution`; None: a receding horizon without delay.

        Raises:
            ValueError: A setting or its value does not exist.
        """
        known = [field.name for field in fields(cls)]
        for name in settings or {}:
            if name not in known:
                raise unknown_name("setting of execution", str(name), known)
        return cls(**(settings or {}))

    def about(self) -> dict[str, Any]:
        """Returns what results depend on, as plain JSON; nothing for a receding horizon without delay."""
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
        """Returns a few words for a reader."""
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

    def delay_steps(self, control_hz: float) -> int | None:
        """Returns the delay in control periods; None: it is measured."""
        return None if isinstance(self.delay_s, str) else periods(self.delay_s, control_hz)

    def ask_after(self, execute_steps: int | None) -> int | None:
        """Returns after how many control periods the next observation is planned for; None: when the plan has run out."""
        return None if self.name == STOPPING else execute_steps

    def session(
        self, policy: Policy, seed: int, *, execute_steps: int | None, clock: Clock | None = None
    ) -> ExecutedSession:
        """Begins an episode.

        Args:
            policy: Who plans.
            seed: As for `policy.session`.
            execute_steps: Actions of a chunk that are executed; None: all of them.
            clock: Of the observations, where time goes on by itself; None: it is simulated.

        Raises:
            ValueError: The policy cannot do this, or the number of actions is none.
        """
        if execute_steps is not None and execute_steps not in COUNT:
            raise ValueError(
                f"execute_steps is {execute_steps}; allowed: 1 and above, or null for whole chunks."
            )
        hz = policy.contract.control_hz
        delay = self.delay_steps(hz)
        latency = Latency(hz, delay or 0)
        given = delay if clock is None else None
        blend = self.blended(
            policy.session(seed),
            policy.contract,
            lambda: latency.expected if given is None else given,
        )
        return ExecutedSession(
            blend,
            hz,
            latency,
            execute_steps=execute_steps,
            stops=self.name == STOPPING,
            delay_steps=given,
            clock=clock,
        )

    def blended(self, session: Session, contract: Contract, expected: Callable[[], int]) -> Blend:
        """Returns a session whose plans are blended with those before them, as this execution does.

        Args:
            session: Of a policy.
            contract: Of that policy.
            expected: Says after how many control periods the next plan is expected to be in force.

        Raises:
            ValueError: The policy cannot do this.
        """
        if self.name == ENSEMBLE:
            return TemporalEnsemble(
                session, contract, decay=DECAY if self.decay is None else self.decay
            )
        if self.name == REAL_TIME:
            return RealTimeChunking(session, contract, expected)
        return Plain(session)


class BlendedPolicy:
    """A policy whose plans are blended where it is, so that its clients need not know of it."""

    def __init__(self, policy: Policy, execution: Execution) -> None:
        """Keeps both.

        Args:
            policy: Who plans.
            execution: How plans are blended.

        Raises:
            ValueError: It is for whoever executes plans to decide.
        """
        delay = execution.delay_steps(policy.contract.control_hz)
        if execution.name == STOPPING or (execution.name != REAL_TIME and execution.delay_s != 0):
            raise ValueError(
                "When plans are asked for, and when they are in force, is decided where they are "
                "executed."
            )
        if execution.name == REAL_TIME and delay is None:
            raise ValueError(
                "A server does not see when its answers arrive: give execution.delay_s in "
                "seconds, or let the client, which "
                "does, use execution=real_time_chunking."
            )
        self._policy = policy
        self._execution = execution
        self._delay = delay or 0

    @property
    def contract(self) -> Contract:
        """That of the policy."""
        return self._policy.contract

    def session(self, seed: int) -> Session:
        """Begins an episode of the policy."""
        return self._execution.blended(
            self._policy.session(seed), self.contract, lambda: self._delay
        )
