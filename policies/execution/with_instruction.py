"""A policy with a fixed instruction, for worlds without instructions; imports no torch."""

from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.contract.instructions import KEY, instruction_array
from stringline.policies.chunks.chunk import ActionChunk, Policy, Session
from stringline.policies.chunks.prefix import ActionPrefix, accepts_prefix, plan_with_prefix


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
        return _Session(self._policy.session(seed), self._text)

    def completed(self, observation: Observation) -> Observation:
        """Returns an observation as the policy receives it."""
        return {KEY: instruction_array(self._text), **observation}


class _Session:
    """One episode; it supports action prefixes if the policy's session does."""

    def __init__(self, session: Session, text: str) -> None:
        self._session = session
        self._instruction = instruction_array(text)
        self.accepts_prefix = accepts_prefix(session)

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        """Plans; an instruction in the observation takes precedence."""
        return plan_with_prefix(self._session, {KEY: self._instruction, **observation}, prefix)
