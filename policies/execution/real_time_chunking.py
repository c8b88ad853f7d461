"""Real-time chunking: a plan that is made while another one is executed begins with what will be executed meanwhile.

Black, Galliker and Levine, Real-Time Execution of Action Chunking Flow Policies, NeurIPS 2025
(arXiv 2506.07339). With a chunk of H actions, of which s are executed before the next observation
is planned for, and a plan that is in force d control periods after its observation, d <= s <= H -
d: the first d actions of the new plan are those of the old one, the others that the old one still
has are a goal that counts less and less, and the rest is free. Here the weight of an action is the
share of the way that it is moved to what the old plan said, at every step of the sampler
(`committed.py`); there it scales the guidance of a gradient. This module imports without torch.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.chunks.chunk_timing import actions_at, periods_covered, postponed
from stringline.policies.chunks.prefix import Commitment, can_commit, cannot_commit


def soft_weights(decided: int, overlap: int) -> NDArray[np.float64]:
    """Returns the weights (overlap,) of what the old plan still says (equation 5 of the paper; 0 beyond).

    1 for the first d, then c (e^c - 1) / (e - 1) with c = (overlap - i) / (overlap - d + 1) falling
    from below 1 to above 0.

    Args:
        decided: d, actions that will have been executed when the new plan is in force.
        overlap: H - s, actions that the old plan still has.
    """
    place = np.arange(overlap, dtype=np.float64)
    falling = (overlap - place) / (overlap - decided + 1)
    return np.where(place < decided, 1.0, falling * np.expm1(falling) / np.expm1(1.0))


class RealTimeChunking:
    """A session whose plans go on from those before them."""

    def __init__(self, session: Session, contract: Contract, expected: Callable[[], int]) -> None:
        """Wraps a session.

        Args:
            session: Whose plans are made to go on.
            contract: What its actions mean.
            expected: Says after how many control periods the next plan is expected to be in force.

        Raises:
            ValueError: The session cannot keep to anything, or its actions mean another thing for
                each observation.
        """
        if not can_commit(session):
            raise cannot_commit(session)
        for dimension in contract.action:
            if dimension.mode != "absolute":
                raise ValueError(
                    f"Real-time chunking goes on with what was planned before; {dimension.name!r} "
                    f"is relative to where the arm "
                    "was then. Allowed: absolute actions (those that a network generates may be "
                    "relative)."
                )
        self._session = session
        self._contract = contract
        self._expected = expected
        self._plan: ActionChunk | None = None

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers with a plan that goes on from the one before.

        Raises:
            ValueError: This kind of policy cannot keep to anything; that shows in the first answer
                of an episode.
        """
        self._plan = self._session.plan(observation, self._commitment(float(observation["time"])))
        return self._plan

    def postpone(self, seconds: float) -> None:
        """Takes note that the arms waited: the plan is carried out that much later."""
        self._plan = None if self._plan is None else postponed(self._plan, seconds)

    def _commitment(self, now: float) -> Commitment:
        hz = self._contract.control_hz
        old = self._plan
        overlap = 0 if old is None else periods_covered(old, now, hz)
        if old is None or not overlap:
            return Commitment.nothing(len(self._contract.action))
        time = now + np.arange(overlap) / hz
        return Commitment(
            time, actions_at(old, time), soft_weights(min(self._expected(), overlap), overlap)
        )
