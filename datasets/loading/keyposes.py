"""Keyposes: the action of an episode at the next grasp or release.

PerAct (Shridhar et al., CoRL 2022, arXiv 2209.05451) and 3D Diffuser Actor (Ke et al., 2024, arXiv
2402.10885) predict keyposes in place of every action; Chain-of-Action (Zhang et al., 2025, arXiv
2506.09990) generates a trajectory back from its keypose.
"""

import numpy as np

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.loading.gripper_commands import check_openings, is_open


def check_keyposes(contract: Contract) -> list[int]:
    """Returns the places of openings in actions; raises a ValueError for a contract without any."""
    return check_openings(contract, "Keyposes", otherwise="policy.keypose=0")


def keypose_steps(action: Array, contract: Contract) -> Array:
    """Returns the step (T,) of the keypose of each step of an episode.

    It is the first step, this one included, at which the command of any gripper changes
    (`gripper_commands.is_open`), and the last step of the episode after the last change.

    Args:
        action: Recorded actions (T, A) of the whole episode.
        contract: Their contract, with absolute openings of grippers.

    Raises:
        ValueError: The actions contain no absolute opening.
    """
    ends = np.zeros(len(action), bool)
    ends[-1:] = True
    for place in check_keyposes(contract):
        ends[1:] |= np.diff(is_open(action[:, place].astype(np.float64), contract.control_hz))
    steps = np.flatnonzero(ends)
    return steps[np.searchsorted(steps, np.arange(len(action)))]
