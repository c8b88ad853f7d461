"""Only a block in its recess is success: lying in fmb_1, standing in fmb_2."""

import numpy as np
import pytest
from tests.sim.episodes import assert_smooth, follow, place_at, stay

from stringline.datasets.embodiments.aloha import ALOHA, START_POSE
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.props.insertion_parts import Peg, RecessedBoard
from stringline.sim.tasks.placement import box_gap
from stringline.sim.tasks.recess_tasks import RECESS, Fmb1, Fmb2, RecessTask

X, Y, Z = np.eye(3)
WORLD = {"cameras": (), "time_limit_s": 30.0}


@pytest.fixture(scope="module", params=[Fmb1, Fmb2], ids=lambda task: task.name)
def task(request: pytest.FixtureRequest) -> RecessTask:
    built: RecessTask = request.param()
    return built


def put(world: TaskEnvironment, task: RecessTask, T_board_peg: Matrix) -> None:
    """Puts the peg somewhere relative to the board."""
    place_at(world, task.peg, task.board, T_board_peg)


@pytest.mark.slow
def test_the_expert_succeeds_smoothly_at_a_higher_table_and_passes_all_stages(
    world: TaskEnvironment, task: RecessTask
) -> None:
    results, targets = follow(world, make_expert(task.name), 3, table_height=0.04)
    stages = [result.stage for result in results]
    assert sorted(set(stages)) == [0, 1, 2, 3, 4]
    assert stages == sorted(stages)
    assert_smooth(targets, 12.5)


@pytest.mark.slow
def test_the_expert_retakes_a_slipped_block_at_a_lower_table(
    world: TaskEnvironment, task: RecessTask
) -> None:
    assert record_episode(
        world, make_expert(task.name), 0, slip_m=0.02, options={"table_height": -0.03}
    ).success


@pytest.mark.slow
def test_a_held_block_in_the_recess_does_not_count(
    world: TaskEnvironment, task: RecessTask
) -> None:
    _, targets = follow(world, make_expert(task.name), 5, lambda result: result.stage == 3)
    result = stay(world, targets[-1])
    assert (result.success, task.stages[result.stage]) == (False, "inserted")
    opened = targets[-1].copy()
    opened[ALOHA.grippers["right"]] = 1.0
    assert stay(world, opened, 2.0).success


def test_every_seated_attitude_counts(world: TaskEnvironment, task: RecessTask) -> None:
    for goal in task.goals:
        world.begin(7, {"table_height": 0.06})
        put(world, task, pose((0.0012, -0.0012, 0.001)) @ goal)
        result = stay(world)
        assert result.success
        assert 0.5 <= result.time < 0.8


def test_lifted_over_the_recess_is_a_stage_only_when_held(
    world: TaskEnvironment, task: RecessTask
) -> None:
    world.begin(7)
    put(world, task, pose((0.0, 0.0, 0.06)) @ task.goals[0])
    assert task.over(task.pose(world.physics, task.peg), task.pose(world.physics, task.board))
    assert world.advance(START_POSE).stage == 0


LYING = [
    pose((0.0, 0.0, 0.0685), rotation_about(Z, np.pi / 2)),  # Across the recess.
    pose((0.0, 0.0, 0.0685), rotation_about(Z, np.radians(4.0))),  # Turned by a little, on the rim.
    pose(
        (0.012, 0.0, 0.0645), rotation_about(Y, np.radians(2.9))
    ),  # One end in the recess, the other one on the rim.
    pose(
        (0.0, 0.006, 0.066), rotation_about(X, np.radians(12.0))
    ),  # One edge in the recess, the other one on the rim.
    pose((0.0, 0.07, 0.0685)),  # On the board, beside the recess.
    pose((0.0, 0.16, 0.0185)),  # On the table, beside the board.
    pose((0.0, 0.0, 0.1405), rotation_about(Y, np.pi / 2)),  # On its end, in the recess.
]
UPRIGHT = rotation_about(Y, -np.pi / 2)
STANDING = [
    pose((0.0, 0.0, 0.0685)),  # Lying over the recess.
    pose((0.05, 0.0, 0.1), UPRIGHT),  # Upright on the board, beside the recess.
    pose(
        (0.0, 0.0, 0.1), rotation_about(Z, np.pi / 4) @ UPRIGHT
    ),  # Upright over the recess, turned: on the rim.
    pose((0.0, 0.13, 0.05), UPRIGHT),  # Upright on the table.
    pose(
        (0.0065, 0.0, 0.094), rotation_about(Y, np.radians(12.0)) @ UPRIGHT
    ),  # One edge in the recess, leaning.
    pose((0.02, 0.0, 0.088), rotation_about(Y, np.radians(35.0)) @ UPRIGHT),  # More so.
]


def test_near_misses_are_refused(world: TaskEnvironment, task: RecessTask) -> None:
    for place in LYING if isinstance(task, Fmb1) else STANDING:
        world.begin(8)
        put(world, task, pose((0.0, 0.0, 0.0005)) @ place)
        result = stay(world)
        assert (result.success, result.stage) == (False, 0), place


def test_a_moving_block_in_the_recess_counts_once_it_rests(
    world: TaskEnvironment, task: RecessTask
) -> None:
    world.begin(9)
    for _ in range(40):
        put(world, task, task.goals[0])
        task.peg.set_velocity(
            world.physics, np.array([0.0, 0.0, 0.11]), np.zeros(3)
        )  # Back from a hop after 20 ms.
        assert world.advance(START_POSE).stage == 3
    assert stay(world).success


def test_the_rim_does_not_give_way(world: TaskEnvironment, task: RecessTask) -> None:
    """A block that is turned by more than the play does not enter under a force of 30 N."""
    world.begin(10)
    turn = rotation_about(Z, np.radians(4.0 if isinstance(task, Fmb1) else 20.0))
    put(world, task, pose((0.0, 0.0, task.board.recess.depth + 0.0002), turn) @ task.goals[0])
    for _ in range(50):
        world.physics.bind(task.peg.body).xfrc_applied = (0.0, 0.0, -30.0, 0.0, 0.0, 0.0)
        world.advance(START_POSE)
    assert -3e-4 < -task.depth(world.physics) < 3e-4


@pytest.mark.parametrize(("larger", "fits"), [(-0.0002, True), (0.0006, False)])
def test_the_recess_is_exact(larger: float, fits: bool) -> None:
    """A block with a play of 0.1 mm on each side goes in; one that is 0.3 mm too large does not."""

    class Tight(Fmb1):
        def __init__(self) -> None:
            board = RecessedBoard(size=(0.23, 0.23, 0.05), pockets=(RECESS,))
            RecessTask.__init__(
                self, 50.0, Peg(size=(0.204 + larger, 0.041 + larger, 0.037)), board
            )

    task = Tight()
    world = TaskEnvironment(task, cameras=())
    world.begin(0)
    put(world, task, pose((0.0, 0.0, 0.011)) @ task.goals[0])
    assert stay(world).success is fits
    world.close()


def test_starts_fill_their_ranges(world: TaskEnvironment, task: RecessTask) -> None:
    places, gaps = [], []
    for seed in range(60):
        world.begin(seed)
        poses = [task.pose(world.physics, prop) for prop in (task.peg, task.board)]
        yaws = [np.degrees(np.arctan2(T[1, 0], T[0, 0])) for T in poses]
        places.append([*poses[0][:2, 3], yaws[0], *poses[1][:2, 3], yaws[1]])
        gaps.append(
            box_gap(poses[0], task.peg.half[:2], poses[1], np.array(task.board.size[:2]) / 2)
        )
    limits = [
        task.peg_x,
        task.peg_y,
        task.peg_yaw_deg,
        task.board_x,
        task.board_y,
        task.board_yaw_deg,
    ]
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    lowest, highest = np.transpose(limits)
    assert (low >= lowest - 1e-6).all()
    assert (high <= highest + 1e-6).all()
    assert (high - low > 0.8 * (highest - lowest)).all()
    assert min(gaps) > task.least_gap


def test_an_expert_refuses_other_tasks(world: TaskEnvironment, task: RecessTask) -> None:
    other = "fmb_2" if task.name == "fmb_1" else "fmb_1"
    with pytest.raises(
        ValueError, match=f"This expert does {other!r}; the environment runs {task.name!r}"
    ):
        make_expert(other).reset(world, np.random.default_rng(0))
