"""Places of grasps in demonstrations."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Contract

LEAST_RANGE = 0.05  # Of commanded openings; a gripper that moves less does not grasp.
OPEN = 0.5
CLOSED = 0.25


@dataclass(frozen=True)
class Grasp:
    """A grasp of a demonstration.

    Attributes:
        arm: Name of the arm.
        position: Measured place of its gripper (3,), metres in the base frame.
    """

    arm: str
    position: NDArray[np.float64]


def first_grasp(arrays: Mapping[str, Array], contract: Contract) -> Grasp | None:
    """Returns the first grasp of an episode: the first command that closes a gripper.

    A gripper closes when its command falls from above half of the range that its commands have in
    this episode to below a quarter. So a gripper that first opens, or that narrows before it
    closes, is found as well.

    Returns:
        None if no gripper closes, or its place is unknown.
    """
    found: list[tuple[int, str]] = []
    for index, dimension in enumerate(contract.action):
        key = f"T_base_gripper/{dimension.arm}"
        if dimension.kind != "gripper" or dimension.mode != "absolute" or key not in arrays:
            continue
        step = _closing(np.asarray(arrays["action"])[:, index])
        if step is not None:
            found.append((step, dimension.arm))
    if not found:
        return None
    step, arm = min(found)
    return Grasp(arm, np.asarray(arrays[f"T_base_gripper/{arm}"][step][:3, 3], np.float64))


def _closing(command: Array) -> int | None:
    """Returns the step of commands (T,) that closes the gripper."""
    low = command.min()
    span = command.max() - low
    if span < LEAST_RANGE:
        return None
    was_open = np.maximum.accumulate(command) >= low + OPEN * span
    steps = np.flatnonzero(was_open & (command <= low + CLOSED * span))
    return int(steps[0]) if len(steps) else None
