"""Temporal ensembling: what several plans say about the same moment is averaged.

Zhao et al., Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware, RSS 2023 (arXiv
2304.13705), section IV-B: w_i = exp(-k i), where i = 0 is the oldest plan, and the weights of a
moment are divided by their sum. This module imports without torch.
"""

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import FINITE
from stringline.datasets.contract.contract import ActionKind, Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.chunks.chunk_timing import actions_at, postponed
from stringline.policies.chunks.prefix import SAME_TIME_S

AVERAGED: tuple[ActionKind, ...] = ("joint", "gripper", "position")


class TemporalEnsemble:
    """A session whose plans are averages, action by action, of all its plans so far that reach as far.

    Plans are matched by when their actions are due, not by their number; between two actions of an
    older plan it is linear.
    """

    def __init__(self, session: Session, contract: Contract, *, decay: float = 0.01) -> None:
        """Wraps a session.

        Args:
            session: Whose plans are averaged.
            contract: What its actions mean.
            decay: k, per plan; the larger, the less newer plans count. Below 0 it is the older ones
                that count less.

        Raises:
            ValueError: The decay is not finite, or an average of such actions means nothing.
        """
        FINITE.check(decay=decay)
        check_averages(contract)
        self._session = session
        self._decay = decay
        self._plans: list[ActionChunk] = []

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers with the average of the new plan and those before it, for the times of the new one."""
        new = self._session.plan(observation)
        self._plans = [
            *(old for old in self._plans if old.time[-1] >= new.time[0] - SAME_TIME_S),
            new,
        ]
        return ActionChunk(new.time, self._average(new.time))

    def postpone(self, seconds: float) -> None:
        """Takes note that the arms waited: all plans are carried out that much later."""
        self._plans = [postponed(plan, seconds) for plan in self._plans]

    def _average(self, time: NDArray[np.float64]) -> NDArray[np.float32]:
        dim = self._plans[-1].action.shape[1]
        total = np.zeros((len(time), dim))
        weights = np.zeros(len(time))
        count = np.zeros(len(time), np.int64)
        for plan in self._plans:  # The oldest first, as i counts.
            there = (time >= plan.time[0] - SAME_TIME_S) & (time <= plan.time[-1] + SAME_TIME_S)
            weight = np.where(there, np.exp(-self._decay * count), 0.0)
            total += weight[:, None] * actions_at(plan, time)
            weights += weight
            count += there
        return (total / weights[:, None]).astype(np.float32)


def check_averages(contract: Contract) -> None:
    """Refuses actions of which an average, entry by entry, means nothing.

    Raises:
        ValueError: One is (part of) a rotation, or is counted from a state that is another one for
            each plan.
    """
    for dimension in contract.action:
        if dimension.kind not in AVERAGED:
            raise ValueError(
                f"Temporal ensembling averages actions entry by entry; {dimension.name!r} is part "
                f"of a {dimension.kind}, whose "
                f"average is none. Allowed: {', '.join(AVERAGED)}. Use "
                f"execution=real_time_chunking or receding_horizon."
            )
        if dimension.mode != "absolute":
            raise ValueError(
                f"Temporal ensembling averages plans made at different times; {dimension.name!r} "
                f"is relative to where "
                "the arm was then. Allowed: absolute actions."
            )
