"""With `start_spread` the arms start anywhere in a stated range, and nothing else changes."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from dm_control import mjcf

from stringline import KukaPick, StartRange, TaskEnvironment, make_expert, pose, record_episode
from stringline.datasets.embodiments.transforms import inverse
from stringline.sim.robots.workcells import ALOHA_CELL, KUKA_CELL
from stringline.sim.tasks.task_registry import TASKS, make_task, task_class

VARIED = {"start_spread": 1.0}


@pytest.fixture(params=TASKS)
def world(request: pytest.FixtureRequest) -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(make_task(request.param), cameras=())
    yield world
    world.close()


def tilt_deg(rotation: np.ndarray) -> float:
    """Angle by which a rotation (3, 3) tilts the vertical axis."""
    return float(np.degrees(np.arccos(np.clip(rotation[2, 2], -1.0, 1.0))))


@pytest.mark.slow
def test_starts_are_in_the_range_and_free_and_objects_stay_where_they_were(
    world: TaskEnvironment,
) -> None:
    """Varied starts leave every object of the seed where it was."""
    task, robot = world.embodiment, world.task
    chosen = robot.starts_within()
    assert chosen is not None
    home = task.forward_kinematics(task.home)
    arms = sum(len(task.revolute_joints[arm]) + 2 for arm in task.arms)
    lowest, highest = robot.cell.table_heights
    starts = []
    for seed, height in enumerate((0.0, lowest, highest)):
        world.begin(seed, {"start_spread": 0.0, "table_height": height})
        np.testing.assert_array_equal(world.start, task.home)
        before = world.body_positions()
        world.begin(seed, {**VARIED, "table_height": height})
        assert (before != world.body_positions()).sum() <= arms
        np.testing.assert_allclose(robot.robot.positions(world.physics), world.start, atol=1e-9)
        assert (task.lower <= world.start).all()
        assert (world.start <= task.upper).all()
        assert not robot.contact_state(world.physics).by_any_arm([*robot.props, "table"])
        for arm, T in task.forward_kinematics(world.start).items():
            offset = T[:3, 3] - home[arm][:3, 3]
            assert np.abs(offset[:2]).max() <= chosen.level_m + 1e-3
            assert chosen.height_m[0] - 1e-3 <= offset[2] <= chosen.height_m[1] + 1e-3
            assert tilt_deg((T @ inverse(home[arm]))[:3, :3]) <= chosen.tilt_deg + 0.1
            opening = world.start[task.grippers[arm]]
            assert chosen.opening[0] <= opening <= chosen.opening[1]
        starts.append(world.start)
    assert len({tuple(start) for start in starts}) == len(starts)


@pytest.mark.slow
def test_an_expert_moves_on_from_the_start(world: TaskEnvironment) -> None:
    expert = make_expert(world.task.name)
    world.begin(5, VARIED)
    expert.reset(world, np.random.default_rng(5))
    assert np.abs(expert.act(world) - world.start).max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fmb_1", "mug_on_plate"])
def test_an_expert_succeeds_from_a_start_with_less_in_reach(name: str) -> None:
    """From the joints of this start, the way to the recess of fmb_1 is out of reach."""
    world = TaskEnvironment(make_task(name), cameras=(), time_limit_s=30.0)
    recording = record_episode(world, make_expert(name), 1, options=VARIED | {"strict": True})
    world.close()
    assert recording.success, recording.error


def test_the_start_is_that_of_the_seed() -> None:
    world = TaskEnvironment(make_task("kuka_hand_over"), cameras=())
    starts = []
    for seed in (7, 8, 7):
        world.begin(seed, {"distractors": 1.0} if starts else {})
        starts.append(world.start.tolist())
    world.close()
    assert starts[0] == starts[2] != starts[1]


@pytest.mark.slow
def test_a_spread_scales_the_distance_from_home() -> None:
    """At 0 the arms start at home; the objects stay where they are, and the criterion is strict."""
    world = TaskEnvironment(make_task("bowl_on_rack"), cameras=())
    task, home = world.task, world.embodiment.home
    whole = world.embodiment.forward_kinematics(home)
    away, starts = [], []
    for spread in (0.0, 0.25, 0.5, 1.0):
        world.begin(3, {"strict": True, "start_spread": spread})
        starts.append(world.start)
        found = world.embodiment.forward_kinematics(world.start)
        away.append(max(float(np.linalg.norm((found[arm] - whole[arm])[:3, 3])) for arm in found))
        assert task.strict
        assert task.starts_at_home == (spread == 0.0)
    world.begin(3, VARIED)
    np.testing.assert_array_equal(world.start, starts[-1])
    np.testing.assert_array_equal(starts[0], home)
    assert away[0] == 0.0
    assert np.allclose(away, np.array([0.0, 0.25, 0.5, 1.0]) * away[-1], atol=1e-3)
    spreads = set()
    for seed in range(4):
        world.begin(seed, {"start_spread": [0.0, 1.0]})
        spreads.add(task.drawn["start_spread"])
    world.close()
    assert len(spreads) == 4


def test_rules() -> None:
    """The tasks of the KUKA vary the start by default, those of ALOHA on demand."""
    for name in TASKS:
        task = task_class(name)
        assert task.rule_of({}) == {
            "start_spread": 1.0 if name.startswith("kuka") else 0.0,
            "strict": False,
        }
        one = name in ("kuka_pick", "kuka_bimanual_pick")
        assert task.may_be_strict == (not one)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"start_spread": 2}, r"start_spread must be a number from 0 to 1 \(got 2\)"),
        ({"strict": True}, r"strict is true, but kuka_pick has one criterion; allowed: false\."),
        ({"strict": 1}, r"strict is 1; allowed: true, false\."),
        ({"version": 2}, r"no task option 'version'"),
    ],
)
def test_what_a_rule_cannot_be(options: dict[str, object], answer: str) -> None:
    with pytest.raises(ValueError, match=answer) as error:
        KukaPick().configure(**options)
    assert "\n" not in str(error.value)


def test_a_workcell_without_a_range_starts_at_home() -> None:
    class Plain(KukaPick):
        cell = replace(KUKA_CELL, start_range=None)
        varied_starts = False

    Plain().configure(start_spread=0.0)
    with pytest.raises(ValueError, match=r"workcell of kuka_pick has no range of start poses"):
        Plain().configure(start_spread=[0.0, 0.5])


def test_a_range_without_a_free_start_is_named() -> None:
    """An object stands where the arm would start."""

    class Blocked(KukaPick):
        start_range = StartRange(0.0, (-0.15, -0.15), 0.0, 0.0, (0.0, 0.0))

        def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
            self.draw_object(physics, random_state)
            self.place(physics, self.object, pose((0.385, 0.0, 0.25)))

    world = TaskEnvironment(Blocked(), cameras=())
    with pytest.raises(
        ValueError, match=r"None of 60 start poses of the arm arm is reachable"
    ) as e:
        world.begin(0)
    world.close()
    assert "-15 to -15 cm in height" in str(e.value)


def test_ranges_reach_beyond_the_shifts_of_the_table() -> None:
    """Otherwise the height above the table would still tell the phase on a shifted table."""
    for cell in (KUKA_CELL, ALOHA_CELL):
        assert cell.start_range is not None
        low, high = cell.start_range.height_m
        assert low <= -cell.table_heights[1]
        assert high >= -cell.table_heights[0]
