"""Temporal ensembling: the actions of several plans for the same time are averaged.

Zhao et al., Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware, RSS 2023 (arXiv
2304.13705), section IV-B: w_i = exp(-k i), where i = 0 is the oldest plan, and the weights of a
time are divided by their sum. This module does not import torch.
"""

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import FINITE
from stringline.datasets.contract.contract import ActionKind, Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.chunks.chunk_timing import actions_at, postponed
from stringline.policies.chunks.prefix import SAME_TIME_S

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
