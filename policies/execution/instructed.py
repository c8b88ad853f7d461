"""A policy that is told what to do, for worlds that do not say it; it imports without torch."""

from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.contract.instructions import KEY, instruction_array
from stringline.policies.chunks.chunk import ActionChunk, Policy, Session
from stringline.policies.chunks.prefix import Commitment, can_commit, plan_with


class Instructed:
    """Adds one instruction to every observation of a policy, at hand or on a server; who needs none does not look at it."""

    def __init__(self, policy: Policy, text: str) -> None:
        """Keeps both.

        Args:
            policy: Who acts.
            text: What to do; empty: nothing is asked for.

        Raises:
            ValueError: The policy is at hand and does not know it; one on a server says so when it
                is first asked.
        """
        self._policy = policy
        self._text = text
        if (check := getattr(policy, "check_instruction", None)) is not None:
            check(text)

    @property
    def contract(self) -> Contract:
        """That of the policy."""
        return self._policy.contract

    def session(self, seed: int) -> Session:
        """Starts an episode of the policy."""
        return _Session(self._policy.session(seed), self._text)


class _Session:
    """One episode; it can keep to what is decided if that of the policy can."""

    def __init__(self, session: Session, text: str) -> None:
        self._session = session
        self._instruction = instruction_array(text)
        self.commits = can_commit(session)

    def plan(self, observation: Observation, committed: Commitment | None = None) -> ActionChunk:
        """Answers; what the observation asks for itself goes first."""
        return plan_with(self._session, {KEY: self._instruction, **observation}, committed)
