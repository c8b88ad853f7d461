"""Blocks in a socket that is held in the air are success; other states are not."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.sim.episodes import assert_smooth, stay

from stringline.datasets.embodiments.aloha import ALOHA, ARMS, START_POSE
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.experts.insertion_experts import BarGrasp, end_grasps
from stringline.sim.tasks.insertion_tasks import (
    APART_M,
    DoubleInsertion,
    InsertionTask,
    SingleInsertion,
    fit,
)

X, Y, Z = np.eye(3)
IN_AIR = pose((-0.02, 0.02, 0.16), rotation_about(Z, 0.1))
FLIPPED = rotation_about(Z, np.pi)


@pytest.fixture(scope="module")
def single() -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(SingleInsertion(), cameras=(), time_limit_s=30.0)
    yield world
    world.close()


@pytest.fixture(scope="module")
def double() -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(DoubleInsertion(), cameras=(), time_limit_s=60.0)
    yield world
    world.close()


def insertion(world: TaskEnvironment) -> InsertionTask:
    assert isinstance(world.task, InsertionTask)
    return world.task


def grasping(
    T_base_prop: Matrix, arms: dict[str, float], q: Vector = START_POSE, pitch_deg: float = 60.0
) -> Vector:
    """Returns joints (14,) around a bar or tube, at a distance from its middle, grippers open."""
    kinematics, q = InverseKinematics(ALOHA), q.copy()
    for arm, along in arms.items():
        grasp = end_grasps(T_base_prop, BarGrasp(arm, along, 0.3, (pitch_deg,)))[0]
        q = kinematics.solve({arm: T_base_prop @ grasp.T_prop_gripper}, q)
    return q


def hold_up(
    world: TaskEnvironment,
    *arms: str,
    at: Matrix = IN_AIR,
    pitch_deg: float = 60.0,
    table_height: float = 0.0,
) -> Vector:
    """Begins an episode with the socket held in the air; returns the joint targets."""
    task = insertion(world)
    world.begin(0, {"table_height": table_height})
    q = grasping(at, dict.fromkeys(arms, task.socket.length / 2 - 0.016), pitch_deg=pitch_deg)
    for arm in arms:
        q[ALOHA.grippers[arm]] = 0.8
    task.robot.put(world.physics, q)
    for arm in arms:
        q[ALOHA.grippers[arm]] = 0.3
    for _ in range(25):
        T_table_socket = at.copy()
        T_table_socket[2, 3] -= task.table_height
        task.place(world.physics, task.socket, T_table_socket)
        world.advance(q)
    return q


def put(
    world: TaskEnvironment, depths: list[float], side: tuple[float, float] = (0.0, 0.0)
) -> None:
    """Puts blocks into the socket to given depths, one from each end, with an offset in metres."""
    task = insertion(world)
    for block, depth, sign in zip(task.blocks, depths, (1.0, -1.0), strict=False):
        along = sign * (task.socket.length / 2 + block.length / 2 - depth)
        T_table_block = task.pose(world.physics, task.socket) @ pose((along, *side))
        T_table_block[2, 3] -= task.table_height
        task.place(world.physics, block, T_table_block)


@pytest.mark.parametrize(
    ("T_socket_block", "depth", "distance", "angle"),
    [
        (pose((0.05, 0.0, 0.0)), 0.07, 0.0, 0.0),
        (pose((-0.05, 0.003, 0.0)), 0.07, 0.003, 0.0),
        (pose((0.0, 0.0, -0.002), FLIPPED), 0.12, 0.002, 0.0),
        (
            pose((0.05, 0.0, 0.0), rotation_about(Z, 0.04)),
            0.07,
            0.06 * np.sin(0.04),
            np.degrees(0.04),
        ),
        (pose((0.121, 0.0, 0.0)), 0.0, np.inf, 0.0),
        (pose((0.0, 0.0, 0.0), rotation_about(Y, np.pi / 2)), 0.0, np.inf, 90.0),
        (pose((0.0, 0.0, 0.037)), 0.12, 0.037, 0.0),
    ],
)
def test_a_fit_is_measured(
    T_socket_block: Matrix, depth: float, distance: float, angle: float
) -> None:
    for T_base_socket in (np.eye(4), pose((0.3, -0.2, 0.4), rotation_about((0.6, 0.0, 0.8), 2.0))):
        for turn in (np.eye(3), rotation_about(X, np.pi / 2), FLIPPED):
            found = fit(
                T_base_socket, T_base_socket @ T_socket_block @ pose(rotation=turn), 0.12, 0.12
            )
            np.testing.assert_allclose(found.depth, depth, atol=2e-4)
            np.testing.assert_allclose(found.axis_distance, distance, atol=2e-4)
            np.testing.assert_allclose(found.angle_deg, angle, atol=1e-5)
            assert found.side == (1 if T_socket_block[0, 3] >= 0 else -1)


@pytest.mark.parametrize("table_height", [0.0, 0.05])
def test_a_block_in_a_held_socket_is_success_after_half_a_second(
    single: TaskEnvironment, table_height: float
) -> None:
    target = hold_up(single, "left", table_height=table_height)
    put(single, [0.08])
    assert not stay(single, target, 0.4).success
    result = stay(single, target, 1.0)
    assert (result.success, result.stage) == (True, 4)


@pytest.mark.parametrize(
    ("depths", "side"),
    [
        ([0.05], (0.0, 0.0)),  # Its middle is still outside, and it tips over the rim.
        ([0.068], (0.0, 0.0)),  # It stays there, less than 60 % deep.
        ([0.12], (0.0, 0.038)),  # On top of the socket.
        ([0.12], (-0.05, 0.0)),  # Beside it.
    ],
)
def test_a_block_outside_of_the_socket_does_not_count(
    single: TaskEnvironment, depths: list[float], side: tuple[float, float]
) -> None:
    target = hold_up(single, "left")
    put(single, depths, side)
    result = stay(single, target, 1.2)
    assert (result.success, result.stage) == (False, 1)


def test_a_socket_on_the_table_or_dropped_does_not_count(single: TaskEnvironment) -> None:
    single.begin(0)
    put(single, [0.1])
    assert stay(single, START_POSE, 1.2).stage == 0
    target = hold_up(single, "left")
    put(single, [0.1])
    target[ALOHA.grippers["left"]] = 1.0
    assert not stay(single, target, 1.5).success


def test_a_block_that_slides_onto_the_table_does_not_count(single: TaskEnvironment) -> None:
    """The block leans out of a tilted socket close above the table, still deep enough."""
    tilted = pose((-0.1, 0.0, 0.083), rotation_about(Y, np.radians(40.0)))
    target, task = hold_up(single, "left", at=tilted, pitch_deg=30.0), insertion(single)
    put(single, [0.1])
    result = stay(single, target, 2.0)
    assert task.fit(single.physics, task.blocks[0]).seated(0.12)
    assert task.contact_state(single.physics).between("block", "table")
    assert task.at_rest(single.physics)
    assert (result.success, result.stage) == (False, 3)


def test_only_the_left_arm_may_hold_the_socket(single: TaskEnvironment) -> None:
    for arms in (("right",), ARMS):
        target = hold_up(single, *arms)
        put(single, [0.1])
        assert not stay(single, target, 1.2).success


def test_a_held_block_counts_once_it_is_released(
    single: TaskEnvironment,
) -> None:
    target, task = hold_up(single, "left"), insertion(single)
    put(single, [0.08])
    held = grasping(task.pose(single.physics, task.blocks[0]), {"right": 0.047}, target)
    held[ALOHA.grippers["right"]] = 0.55
    task.robot.put(single.physics, held)
    held[ALOHA.grippers["right"]] = 0.1
    put(single, [0.08])
    result = stay(single, held, 1.2)
    assert task.fit(single.physics, task.blocks[0]).seated(0.12)
    assert (result.success, result.stage) == (False, 3)
    held[ALOHA.grippers["right"]] = 1.0
    assert stay(single, held, 1.5).success


def test_a_moving_socket_does_not_count(single: TaskEnvironment) -> None:
    target = hold_up(single, "left")
    put(single, [0.08])
    for step in range(50):
        target[0] += 0.001
        assert not single.advance(target).success, step
    assert stay(single, target, 1.5).success


@pytest.mark.parametrize("arms", [("left",), ("right",)])
def test_both_ends_must_be_filled(double: TaskEnvironment, arms: tuple[str, ...]) -> None:
    target = hold_up(double, *arms)
    put(double, [0.055])
    result = stay(double, target, 1.2)
    assert (result.success, result.stage) == (False, 3)
    put(double, [0.055, 0.044])
    assert not stay(double, target, 1.2).success
    put(double, [0.055, 0.055])
    result = stay(double, target, 1.2)
    assert (result.success, result.stage) == (True, 5)


def test_a_socket_in_both_grippers_does_not_count(double: TaskEnvironment) -> None:
    target = hold_up(double, *ARMS)
    put(double, [0.055, 0.055])
    result = stay(double, target, 1.2)
    assert (result.success, result.stage) == (False, 4)


def watch_the_expert(
    world: TaskEnvironment, seed: int, **options: float
) -> tuple[list[int], Vector]:
    """Runs the expert until it succeeds; returns the stages and the joint targets (T, 14)."""
    expert = make_expert(world.task.name)
    world.begin(seed, options)
    expert.reset(world, np.random.default_rng(seed))
    stages, targets = list[int](), list[Vector]()
    while not world.task.success:
        targets.append(expert.act(world))
        result = world.advance(targets[-1])
        assert not result.expired
        assert not world.task.contact_state(world.physics).between("left", "right")
        stages += [] if result.stage in stages else [result.stage]
    return stages, np.stack(targets)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "table_height"), [(3, 0.0), (8, 0.04)])
def test_the_expert_inserts_a_block_smoothly(
    single: TaskEnvironment, seed: int, table_height: float
) -> None:
    stages, targets = watch_the_expert(single, seed, table_height=table_height)
    assert stages == [0, 1, 2, 3, 4]
    assert_smooth(targets, 12.5)


@pytest.mark.slow
def test_the_expert_inserts_both_blocks(double: TaskEnvironment) -> None:
    assert watch_the_expert(double, 5)[0] == [0, 1, 2, 3, 4, 5]


def test_starts_fill_their_ranges(single: TaskEnvironment, double: TaskEnvironment) -> None:
    for world, ranges in (
        (single, [0.16, 0.2, 50.0] * 2),
        (double, [0.16, 0.16, 40.0, 0.16, 0.2, 40.0, 0.16, 0.16, 40.0]),
    ):
        task, places = insertion(world), []
        for seed in range(60):
            world.begin(seed)
            poses = [task.pose(world.physics, prop) for prop in (task.socket, *task.blocks)]
            places.append(
                np.concatenate(
                    [(*T[:2, 3], np.degrees(np.arctan2(T[1, 0], T[0, 0]))) for T in poses]
                )
            )
            axes = [T[:2, 3] + np.linspace(-1, 1, 9)[:, None] * 0.06 * T[:2, 0] for T in poses]
            gaps = [
                np.linalg.norm(a[:, None] - b, axis=-1).min()
                for i, a in enumerate(axes)
                for b in axes[:i]
            ]
            assert min(gaps) > min(APART_M, 0.04) - 0.01
            result = stay(world, START_POSE, 0.04)
            assert task.at_rest(world.physics)
            assert result.stage == 0
        spread = np.ptp(places, axis=0)
        assert (spread <= np.array(ranges) + 1e-6).all()
        assert (spread > 0.8 * np.array(ranges)).all()
