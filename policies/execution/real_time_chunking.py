"""Real-time chunking: a new plan begins with the actions that are executed while it is made.

Black, Galliker and Levine, Real-Time Execution of Action Chunking Flow Policies, NeurIPS 2025
(arXiv 2506.07339). With chunks of H actions, of which s are executed before the next observation is
planned for, and a plan that is in force d control periods after its observation, d <= s <= H - d:
the first d actions of the new plan are those of the old one, the others that the old one still has
are goals of decreasing weight, and the rest is free. Here the weight of an action is the share by
which it is moved to the old plan at every step of the sampler (`normalised_prefix.py`); in the
paper it scales a gradient. This module does not import torch.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.chunks.chunk_timing import actions_at, periods_covered, postponed
from stringline.policies.chunks.prefix import ActionPrefix, accepts_prefix, prefix_error


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
