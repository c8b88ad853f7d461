"""Distances of capsules against dense sampling, and at known poses."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, IIWA14_BIMANUAL, Embodiment, SafetyLimits, pose
from stringline.real_robot.safety.cell import Cell, Obstacle
from stringline.real_robot.safety.clearance import Clearance, Room
from stringline.real_robot.safety.stage_context import SPACES, StageContext

Vector = NDArray[np.float64]

BODIES = {"aloha": ALOHA, "iiwa14_bimanual": IIWA14_BIMANUAL}
FAR = 5.0


def random_poses(body: Embodiment, count: int, seed: int = 0) -> Vector:
    """Returns joint vectors (count, J) within the limits."""
    random = np.random.default_rng(seed)
    return random.uniform(body.lower, body.upper, (count, len(body.joints)))


def segment_distance(start_a: Vector, end_a: Vector, start_b: Vector, end_b: Vector) -> Vector:
    """Returns the distances (...) between segments with ends (..., 3).

    Ericson (2005), Real-Time Collision Detection, section 5.1.9: nearest points of the lines,
    clamped to the segments in turn. Exact to a few micrometres: shorter segments count as points.
    """
    along_a = end_a - start_a
    along_b = end_b - start_b
    between = start_a - start_b
    aa = _dot(along_a, along_a)
    bb = _dot(along_b, along_b)
    ab = _dot(along_a, along_b)
    a_between = _dot(along_a, between)
    b_between = _dot(along_b, between)
    tiny = 1e-12
    determinant = aa * bb - ab * ab
    s = np.where(
        determinant > tiny, (ab * b_between - a_between * bb) / np.maximum(determinant, tiny), 0.0
    )
    s = np.clip(s, 0.0, 1.0)
    t = np.clip(np.where(bb > tiny, (ab * s + b_between) / np.maximum(bb, tiny), 0.0), 0.0, 1.0)
    s = np.clip(np.where(aa > tiny, (ab * t - a_between) / np.maximum(aa, tiny), 0.0), 0.0, 1.0)
    nearest = between + s[..., None] * along_a - t[..., None] * along_b
    return np.asarray(np.sqrt(_dot(nearest, nearest)))


def _dot(a: Vector, b: Vector) -> Vector:
    return np.asarray(np.einsum("...i,...i->...", a, b))


def gaps(axes: Vector, others: Vector, radii: Vector, other_radii: Vector) -> Vector:
    """Returns the distances (C, D) of capsules with axes (C, 2, 3) and (D, 2, 3)."""
    one, other = axes[:, None], others[None]
    apart = segment_distance(one[..., 0, :], one[..., 1, :], other[..., 0, :], other[..., 1, :])
    return apart - radii[:, None] - other_radii


@pytest.mark.parametrize("name", BODIES)
def test_distances_of_capsules_equal_the_closed_form(name: str) -> None:
    body = BODIES[name]
    clearance = Clearance(body, exact_up_to=FAR)
    mounts = clearance.mounts[0]
    enclosed = replace(body, capsule_mounts=mounts)
    radii = np.array([mount.radius for mount in mounts])
    pairs = np.array(clearance.own_pairs[0])
    for q in random_poses(body, 20):
        room, axes = clearance.measure(q), enclosed.capsule_axes(q)
        between = gaps(axes[0], axes[1], radii, radii)
        assert room.between[0] == pytest.approx(between.min(axis=1), abs=1e-9)
        assert room.between[1] == pytest.approx(between.min(axis=0), abs=1e-9)
        for own, place in zip(room.own, axes, strict=True):
            kept = np.full((len(radii), len(radii)), FAR + 0.1)
            kept[tuple(pairs.T)] = gaps(place, place, radii, radii)[tuple(pairs.T)]
            assert own == pytest.approx(np.minimum(kept, kept.T).min(axis=0), abs=1e-9)


def test_the_reference_is_the_distance_of_the_nearest_samples() -> None:
    random, share = np.random.default_rng(0), np.linspace(0, 1, 200)[:, None]
    for a, b, c, d in random.uniform(-1, 1, (40, 4, 3)):
        one, other = a + share * (b - a), c + share * (d - c)
        sampled = np.linalg.norm(one[:, None] - other[None], axis=-1).min()
        spacing = (np.linalg.norm(b - a) + np.linalg.norm(d - c)) / 199
        assert sampled - spacing <= segment_distance(a, b, c, d) <= sampled + 1e-12


@pytest.mark.parametrize("name", BODIES)
def test_slopes_are_the_derivatives_of_the_distances(name: str) -> None:
    body, step = BODIES[name], 1e-7
    obstacle = Obstacle("box", "box", (0.1, 0.05, 0.2), pose((0.1, 0.2, 0.2)))
    box = np.array([[-0.6, -0.4, -1.0], [0.6, 0.4, 1.0]])
    limits = replace(SafetyLimits.of(body), box=box, cell=Cell(obstacles=(obstacle,)))
    around = StageContext(body, limits, 0.01).surroundings
    seen = set()
    drawn = random_poses(body, 400, seed=1)
    meeting = drawn[around.spare(around.measure(drawn))[:, 2].min(axis=(1, 2)) < 0.1]
    for q in (*(0.5 * random_poses(body, 12) + 0.5 * body.home), *meeting[:2]):
        measured = around.measure(np.stack([body.home, q]))
        both = around.spare(measured)
        spare = both[1]
        gaps = around.gaps(measured, both, np.array([False, True]), most=0.3)
        slopes = around.slopes(measured, gaps)
        nudges = step * np.eye(len(q))[around.revolute_joints]
        above, below = (around.spare(around.measure(q + way * nudges)) for way in (1, -1))
        with np.errstate(invalid="ignore"):  # Distances without a meaning are infinite.
            change = (above - below).reshape(len(nudges), len(spare), -1) / (2 * step)
        for space, places, value, slope in zip(
            gaps.spaces, gaps.near.places, gaps.spare, slopes, strict=True
        ):
            of_space = spare[space].ravel()
            nearest = [place for place in places if 0 <= place < of_space.size]
            for place in nearest:
                if value < of_space[place] + 1e-9:
                    assert slope == pytest.approx(change[:, space, place], abs=1e-6)
                    seen.add(SPACES[space].distance)
            assert value >= of_space[nearest].max() - 1e-9
    assert seen == set(Room._fields)


def test_at_home_everything_is_clear() -> None:
    room = Clearance(ALOHA, exact_up_to=0.3).measure(ALOHA.home)
    assert (room.heights > 0.05).all()
    assert room.between.min() > 0.3
    assert room.own.min() > 0.04
    assert np.isinf(room.walls).all()


def test_a_raised_table_is_nearer() -> None:
    flat, raised = (
        Clearance(ALOHA).measure(ALOHA.home).heights,
        Clearance(ALOHA, 0.05).measure(ALOHA.home).heights,
    )
    moving = np.isfinite(flat)
    assert np.allclose(flat[moving] - raised[moving], 0.05)
    assert moving.any(axis=1).all()


def test_arms_that_reach_forward_meet() -> None:
    q = ALOHA.home.copy()
    for arm in ALOHA.arms:
        q[ALOHA.revolute_joints[arm][1:3]] = 0.6, 0.3
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
        near[ALOHA.revolute_joints[arm][1:3]] = 0.6, 0.3
    exact = Clearance(ALOHA, exact_up_to=2.0)
    both = exact.measure(np.stack([ALOHA.home, near])).between
    assert np.allclose(both, [exact.measure(ALOHA.home).between, exact.measure(near).between])
    usual = Clearance(ALOHA).measure(ALOHA.home).between
    assert (usual <= both[0] + 1e-12).all()
    assert usual.min() < both[0].min()


def test_an_embodiment_without_capsules_is_always_clear() -> None:
    bare = replace(ALOHA, capsule_mounts=(), enclosing_mounts=(), cameras=())
    assert bare.capsules(bare.home) == []
    assert Clearance(bare).measure(bare.home).heights.shape == (2, 0)
