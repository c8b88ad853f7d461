"""Open and close commands found in recorded openings."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.policies.demonstrations import CONTRACT

from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.loading.window_settings import gripper_places, is_open, with_commands

HZ = 50.0
SPEED = 1.9  # Openings/s, as of the experts.


def path(*levels: float, rest_s: float = 0.3) -> NDArray[np.float64]:
    """Returns openings that rest at levels and move between them at `SPEED`."""
    parts = [np.full(round(rest_s * HZ), levels[0])]
    for here, there in pairwise(levels):
        steps = max(2, 1 + round(abs(there - here) / SPEED * HZ))
        parts += [np.linspace(here, there, steps)[1:], np.full(round(rest_s * HZ), there)]
    return np.concatenate(parts)


def changes(opening: NDArray[np.float64]) -> list[tuple[str, float]]:
    """Returns each change of the command with the opening just before it."""
    commands = is_open(opening, HZ)
    return [
        ("open" if commands[step + 1] else "close", round(float(opening[step]), 1))
        for step in np.flatnonzero(np.diff(commands))
    ]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        pytest.param((1, 0, 1), [("close", 1.0), ("open", 0.0)], id="fully"),
        pytest.param(
            (1, 0.8, 0.3, 0.7, 1), [("close", 0.8), ("open", 0.3)], id="narrower before a grasp"
        ),
        pytest.param((1, 0.64, 1), [("close", 1.0), ("open", 0.6)], id="a wide object"),
        pytest.param(
            (0, 0.4, 0, 0.4), [("open", 0.0), ("close", 0.4), ("open", 0.0)], id="in a small space"
        ),
        pytest.param((0.2, 1), [("open", 0.2)], id="begins closed"),
        pytest.param((1, 0.2, 0.26, 0.2, 0.28, 1), [("close", 1.0), ("open", 0.2)], id="unsteady"),
        pytest.param((1, 0.95, 1), [], id="noise"),
    ],
)
def test_commands_begin_with_motions(
    levels: tuple[float, ...], expected: list[tuple[str, float]]
) -> None:
    found = changes(path(*levels))
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    for (_, got), (_, wanted) in zip(found, expected, strict=True):
        assert got == pytest.approx(wanted, abs=0.1)
    assert is_open(path(*levels), HZ)[0] == (levels[0] > 0.5)


@pytest.mark.parametrize("rate", [20.0, 50.0, 200.0])
def test_commands_do_not_depend_on_the_rate(rate: float) -> None:
    """The same motion, sampled at other rates; a command begins within 60 ms of the motion."""
    slow = path(1, 0.8, 0.3, 0.7, 1)
    time = np.arange(len(slow)) / HZ
    at = np.arange(0, time[-1], 1 / rate)
    commands = is_open(np.interp(at, time, slow), rate)
    expected = is_open(slow, HZ)
    seconds = [np.flatnonzero(np.diff(each)) for each in (commands, expected)]
    assert len(seconds[0]) == len(seconds[1]) == 2
    np.testing.assert_allclose(seconds[0] / rate, seconds[1] / HZ, atol=0.06)


def test_noise_does_not_change_commands() -> None:
    clean = path(1, 0.8, 0.3, 0.7, 1)
    noisy = clean + np.random.default_rng(0).uniform(-0.02, 0.02, len(clean))
    kinds = [kind for kind, _ in changes(noisy)]
    assert kinds == ["close", "open"]


@pytest.mark.parametrize(("level", "opens"), [(1.0, True), (0.5, True), (0.2, False)])
def test_a_gripper_that_never_moves_keeps_its_command(level: float, opens: bool) -> None:
    assert (is_open(np.full(9, level), HZ) == opens).all()
    assert len(is_open(np.zeros(0), HZ)) == 0


def test_only_openings_are_replaced() -> None:
    """Joints are unchanged to the bit, and the array itself is left alone."""
    action = np.random.default_rng(0).normal(size=(60, 14)).astype(np.float32)
    action[:, 6] = path(1, 0.4, rest_s=0.5)[:60]
    action[:, 13] = 0.1
    before = action.copy()
    found = with_commands(action, CONTRACT)
    np.testing.assert_array_equal(action, before)
    joints = [place for place in range(14) if place not in (6, 13)]
    np.testing.assert_array_equal(found[:, joints], before[:, joints])
    assert set(np.unique(found[:, 6])) == {0.0, 1.0}
    assert (found[:, 13] == 0).all()
    assert found.dtype == np.float32


def test_other_dimensions_are_no_openings() -> None:
    action = (
        ActionDimension("lift", "post", "gripper", unit="m"),
        ActionDimension("turn", "post", "gripper", "relative", "opening"),
        ActionDimension("grip", "post", "gripper", unit="opening"),
    )
    contract = Contract("post", "its foot", 10.0, (), ("turn",), ("post",), action)
    assert gripper_places(contract) == [2]
