"""Commands beyond the arms' limits are counted, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract.contract import ActionDimension
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.sim.evaluation.results import limit_hits

CONTRACT = ALOHA.contract([], 50.0)
WAIST, GRIPPER = 0, 6


def at_rest(steps: int = 10) -> NDArray[np.float64]:
    """Commands (T, 14) that stay at home."""
    return np.tile(ALOHA.home, (steps, 1))


def test_rest_and_slow_motions_hit_nothing() -> None:
    """Up to just below the largest speed, and with grippers opening and closing at once."""
    assert limit_hits(at_rest(), CONTRACT) == 0.0
    actions = at_rest()
    actions[:, WAIST] += np.arange(10) * 0.999 * np.pi / 50
    actions[::2, GRIPPER], actions[1::2, GRIPPER] = 0.0, 1.0
    assert limit_hits(actions.astype(np.float32), CONTRACT) == 0.0


@pytest.mark.parametrize("joint", [0, 1, 5, 7, 12])
def test_positions_at_or_beyond_a_limit(joint: int) -> None:
    """Three of ten periods, at either end; several joints in one period count once."""
    for limit in (ALOHA.lower, ALOHA.upper):
        actions = at_rest()
        actions[:, joint] = limit[joint] * 0.99  # So that what follows is no jump.
        actions[4:7, joint] = limit[joint]
        assert limit_hits(actions, CONTRACT) == pytest.approx(0.3)
        actions[4:7, (joint + 7) % 14] = actions[4:7, (joint + 7) % 14] + 0.01
        assert limit_hits(actions, CONTRACT) == pytest.approx(0.3)


def test_speeds() -> None:
    """A jump forth and back counts two periods; at half the control rate the jump is slower."""
    actions = at_rest()
    actions[5, WAIST] += 1.5 * np.pi / 50
    assert limit_hits(actions, CONTRACT) == pytest.approx(0.2)
    assert limit_hits(actions, replace(CONTRACT, control_hz=25.0)) == 0.0


def test_commands_without_limits() -> None:
    """Other kinds of commands, and no commands."""
    cartesian = replace(
        CONTRACT, action=(ActionDimension("x", "left", "position", unit="m", frame="base"),)
    )
    assert limit_hits(np.arange(5.0)[:, None] * 100, cartesian) == 0.0
    relative = replace(
        CONTRACT, action=tuple(replace(dimension, mode="relative") for dimension in CONTRACT.action)
    )
    assert limit_hits(at_rest() * 1000, relative) == 0.0
    assert limit_hits(np.zeros((0, 14)), CONTRACT) == 0.0
