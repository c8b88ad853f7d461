"""Experts that move as people by teleoperation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import collect, collecting_expert
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.human_motion import (
    TREMOR_HZ,
    TREMOR_M,
    Hand,
    Tremor,
)
from stringline.sim.experts.motion import GRIPPER_SPEED

HZ = 50.0


def followed(body: Embodiment, targets: Vector, seed: int = 0) -> Vector:
    hand = Hand(body, np.random.default_rng(seed), HZ)
    return np.array([hand.follow(target) for target in targets])


def test_tremor_has_its_size_and_its_frequencies() -> None:
    times = np.arange(0, 60, 1 / HZ)
    tremor = Tremor.drawn(np.random.default_rng(0), 2)
    moved = np.array([tremor.at(time) for time in times])
    size = np.sqrt((moved**2).sum(axis=-1).mean(axis=0))
    np.testing.assert_allclose(size, TREMOR_M, rtol=0.05)
    power = (np.abs(np.fft.rfft(moved, axis=0)) ** 2).sum(axis=(1, 2))
    hz = np.fft.rfftfreq(len(times), 1 / HZ)
    inside = (hz > TREMOR_HZ[0] - 0.1) & (hz < TREMOR_HZ[1] + 0.1)
    assert power[inside].sum() > 0.99 * power.sum()


@pytest.mark.parametrize("body", [ALOHA, IIWA14], ids=lambda body: body.name)
def test_grippers_of_a_resting_hand_tremble_around_their_target(body: Embodiment) -> None:
    targets = np.tile(body.home, (500, 1))
    places = body.forward_kinematics(followed(body, targets))
    for arm, pose in body.forward_kinematics(body.home).items():
        away = places[arm][:, :3, 3] - pose[:3, 3]
        assert np.linalg.norm(away.mean(axis=0)) < 3e-4
        # Linear kinematics, and directions in which the arm hardly moves.
        assert 0.6 * TREMOR_M < np.sqrt((away**2).sum(axis=1).mean()) < 1.2 * TREMOR_M


def test_a_hand_goes_beyond_a_step_and_comes_back() -> None:
    joint = ALOHA.revolute_joints["left"][0]
    target = ALOHA.home.copy()
    target[joint] += 0.5
    q = followed(ALOHA, np.array([ALOHA.home, *[target] * 150]))[:, joint] - ALOHA.home[joint]
    assert 0.52 < q.max() < 0.62
    assert abs(q[-25:].mean() - 0.5) < 0.01


def test_openings_follow_at_the_speed_of_grippers_and_narrow_in_flight_only() -> None:
    place = ALOHA.grippers["left"]
    joint = ALOHA.revolute_joints["left"][0]
    targets = np.tile(ALOHA.home, (300, 1))
    targets[:, place] = np.where(np.arange(300) < 200, 1.0, 0.0)
    targets[:100, joint] += 0.6 * (1 - np.cos(np.linspace(0, np.pi, 100)))
    targets[100:, joint] = targets[99, joint]
    openings = followed(ALOHA, targets, seed=1)[:, place]
    assert np.abs(np.diff(openings)).max() <= GRIPPER_SPEED / HZ + 1e-12
    assert openings[40:90].min() < 0.95
    assert openings[195] > 0.99
    assert openings[-1] == 0.0


def test_joints_stay_within_their_limits() -> None:
    for limit in (ALOHA.lower, ALOHA.upper):
        q = followed(ALOHA, np.tile(limit, (100, 1)))
        assert (q >= ALOHA.lower).all()
        assert (q <= ALOHA.upper).all()


def test_plain_motions_cannot_be_those_of_a_person() -> None:
    with pytest.raises(ValueError, match="varied=true"):
        collecting_expert("bowl_on_rack", varied=False, human_like=True)


@pytest.mark.slow
def test_a_collection_is_repeatable_and_says_how_its_experts_moved(tmp_path: Path) -> None:
    made: list[Any] = []
    for name in ("one", "other"):
        recipe = Recipe("kuka_pick", cameras=(), human_like=True)
        collect(recipe, tmp_path / name, 1, workers=1)
        store = EpisodeStore.open(tmp_path / name)
        made.append(store.episode(store.names()[0]))
    assert made[0].attributes.extra["recipe"]["human_like"]
    np.testing.assert_array_equal(made[0].arrays["action"], made[1].arrays["action"])
