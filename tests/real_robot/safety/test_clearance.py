"""Distances of capsules against dense sampling, and at known poses."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.safety.clearance import Clearance, segment_distance

POINTS = arrays(np.float64, 3, elements=st.floats(-1, 1))


@settings(max_examples=80, deadline=None)
@example(np.array([0, 1e-5, 1e-5]), np.zeros(3), np.zeros(3), np.full(3, 0.0625))
@given(POINTS, POINTS, POINTS, POINTS)
def test_no_two_points_of_the_segments_are_nearer(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray
) -> None:
    share = np.linspace(0, 1, 60)[:, None]
    one, other = a + share * (b - a), c + share * (d - c)
    sampled = np.linalg.norm(one[:, None] - other[None], axis=-1).min()
    exact = segment_distance(a, b, c, d)
    spacing = (np.linalg.norm(b - a) + np.linalg.norm(d - c)) / 59
    # Segments of micrometres count as points or as parallel: an error below their length.
    assert exact <= sampled + 2e-5
    assert exact >= sampled - spacing - 1e-12


def test_at_home_everything_is_clear() -> None:
    heights, between, walls = Clearance(ALOHA).measure(ALOHA.home)
    assert (heights > 0.05).all()
    assert between.min() > 0.3
    assert np.isinf(walls).all()


def test_a_raised_table_is_nearer() -> None:
    flat, raised = (
        Clearance(ALOHA).measure(ALOHA.home)[0],
        Clearance(ALOHA, 0.05).measure(ALOHA.home)[0],
    )
    moving = np.isfinite(flat)
    assert np.allclose(flat[moving] - raised[moving], 0.05)
    assert moving.any(axis=1).all()


def test_arms_that_reach_forward_meet() -> None:
    q = ALOHA.home.copy()
    for arm in ALOHA.arms:
        q[ALOHA.hinges[arm][1:3]] = 0.6, 0.3
    assert Clearance(ALOHA).measure(q).between.min() < 0.0


def test_walls_are_as_far_as_the_outermost_capsule() -> None:
    box = np.array([[-1.0, -0.8, -0.1], [1.5, 0.9, 1.2]])
    walls = Clearance(ALOHA, box=box).measure(ALOHA.home).walls
    for arm, distance in zip(ALOHA.arms, walls.min(axis=-1), strict=True):
        mine = [capsule for capsule in ALOHA.capsules(ALOHA.home) if capsule.arm == arm]
        moving = [
            capsule
            for capsule, mount in zip(mine, ALOHA.capsule_mounts, strict=True)
            if mount.link >= 1
        ]
        gaps = [
            min((end - box[0]).min(), (box[1] - end).min()) - capsule.radius
            for capsule in moving
            for end in (capsule.start, capsule.end)
        ]
        assert np.isclose(distance, min(gaps))


def test_the_distance_of_arms_is_exact_up_to_the_requested_one_also_in_a_batch() -> None:
    near = ALOHA.home.copy()
    for arm in ALOHA.arms:
        near[ALOHA.hinges[arm][1:3]] = 0.6, 0.3
    exact = Clearance(ALOHA, exact_up_to=2.0)
    both = exact.measure(np.stack([ALOHA.home, near])).between
    assert np.allclose(both, [exact.measure(ALOHA.home).between, exact.measure(near).between])
    usual = Clearance(ALOHA).measure(ALOHA.home).between
    assert (usual <= both[0] + 1e-12).all()
    assert usual.min() < both[0].min()


def test_an_embodiment_without_capsules_is_always_clear() -> None:
    bare = replace(ALOHA, capsule_mounts=())
    assert bare.capsules(bare.home) == []
    assert Clearance(bare).measure(bare.home).heights.shape == (2, 0)
