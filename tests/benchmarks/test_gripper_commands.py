"""The benchmark of demonstrations whose openings are replaced by commands."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.benchmarks.scripts import results

from stringline.datasets.embodiments.iiwa14 import IIWA14

CONTRACT = IIWA14.contract([], 50.0)


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return import_module("gripper_commands")


def test_commands_are_those_of_the_episode_at_the_speed_of_the_robot(
    benchmark: ModuleType,
) -> None:
    """A closing that spans two chunks; joints are unchanged to the bit."""
    actions = np.random.default_rng(0).normal(size=(100, 8))
    actions[:, 7] = np.interp(np.arange(100), [40, 55, 80, 90], [1.0, 0.4, 0.4, 0.9])
    found = benchmark.commands(actions, CONTRACT)
    np.testing.assert_array_equal(found[:, :7], actions[:, :7])
    np.testing.assert_array_equal(np.flatnonzero(found[:, 7] == 0), np.arange(41, 82))
    slow = benchmark.at_robot_speed(found, CONTRACT, IIWA14)
    assert np.abs(np.diff(slow[:, 7])).max() == pytest.approx(IIWA14.velocity_limits[7] / 50)
    assert slow[40:66, 7] == pytest.approx(np.maximum(1 - 0.04 * np.arange(26), 0))


@pytest.mark.slow
def test_a_grasp_by_commands_succeeds(tmp_path: Path) -> None:
    rows = results("gripper_commands", tmp_path, "--only", "kuka_pick", "--seeds", "1")
    assert {row["name"].rpartition("/")[2] for row in rows} == {
        "openings",
        "commands",
        "robot_speed",
        "force_20_N",
        "force_10_N",
    }
    assert [row["value"] for row in rows] == [1.0] * 5
