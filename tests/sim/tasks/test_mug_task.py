"""Success needs a mug that stands on the plate; the expert uses one arm or both."""

from itertools import product

import mujoco
import numpy as np
import pytest
from dm_control import mjcf
from tests.sim.episodes import place_at, stay

from stringline import ALOHA, Matrix, Prop, TaskEnvironment, pose, record_episode, rotation_about
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.sim.environment.environment import StepResult
from stringline.sim.experts import mug_expert as mug_on_plate
from stringline.sim.experts.mug_expert import MugOnPlateExpert
from stringline.sim.props.table_props import Holder, Mug, Pen
from stringline.sim.tasks.mug_task import BACK_X, BACK_Y, FRONT_X, FRONT_Y, MugOnPlate, gap

X, Y, Z = np.eye(3)
FLOOR = 0.006
TASK = MugOnPlate.name
WORLD = {"cameras": (), "time_limit_s": 40.0}


def put(world: TaskEnvironment, task: MugOnPlate, T_plate_mug: Matrix) -> StepResult:
    """Puts the mug somewhere relative to the plate and waits."""
    world.begin(2)
    place_at(world, task.mug, task.plate, T_plate_mug)
    return stay(world)


@pytest.mark.parametrize(
    ("offset", "yaw"), [((0.0, 0.0), 0.0), ((0.015, 0.0), 2.0), ((-0.008, 0.012), -1.0)]
)
def test_a_mug_that_stands_on_the_plate_counts(
    world: TaskEnvironment, task: MugOnPlate, offset: tuple[float, float], yaw: float
) -> None:
    result = put(world, task, pose((*offset, FLOOR), rotation_about(Z, yaw)))
    assert (result.success, result.stage) == (True, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "T_plate_mug",
    [
        pose((0.045, 0.0, 0.02), rotation_about(Y, -0.2)),  # Half on the rim.
        pose((0.03, 0.0, FLOOR + 0.048), rotation_about(Y, np.pi / 2)),  # Lying on it.
        pose((0.0, 0.0, FLOOR + 0.0835), rotation_about(X, np.pi)),  # Upside down.
        pose((0.0, -0.19, 0.0)),  # Beside it.
    ],
    ids=["on the rim", "lying", "upside down", "beside"],
)
def test_a_mug_elsewhere_does_not_count(
    world: TaskEnvironment, task: MugOnPlate, T_plate_mug: Matrix
) -> None:
    result = put(world, task, T_plate_mug)
    assert (result.success, result.stage) == (False, 0)


@pytest.mark.slow
def test_a_held_mug_on_the_plate_does_not_count(
    world: TaskEnvironment, task: MugOnPlate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mug_on_plate, "DROP_M", 0.0)
    expert = MugOnPlateExpert(paces=(1.0, 1.0))
    world.begin(3)
    expert.reset(world, np.random.default_rng(3))
    action = START_POSE
    while not task.reached(world.physics):
        action = expert.act(world)
        assert not world.advance(action).expired
    result = world.advance(action)
    for _ in range(60):
        result = world.advance(action)
    assert task.reached(world.physics)
    assert (result.success, result.stage) == (False, 3)


def test_standing_needs_the_whole_base_on_the_floor_of_an_upright_plate(task: MugOnPlate) -> None:
    plate = pose((0.1, 0.2, 0.03), rotation_about(Z, 0.4))
    assert task.stands(plate @ pose((0.017, 0.0, FLOOR)), plate)
    assert not task.stands(plate @ pose((0.019, 0.0, FLOOR)), plate)
    assert not task.stands(plate @ pose((0.0, 0.0, FLOOR + 0.003)), plate)
    assert not task.stands(plate @ pose((0.0, 0.0, FLOOR), rotation_about(X, np.radians(4))), plate)
    tipped = plate @ pose((0.0, 0.0, 0.0), rotation_about(X, np.radians(25)))
    assert not task.stands(tipped @ pose((0.0, 0.0, FLOOR)), tipped)


def test_starts_fill_their_cells_keep_apart_and_are_at_rest(
    world: TaskEnvironment, task: MugOnPlate
) -> None:
    cells: dict[str, set[int]] = {name: set() for name in task.props}
    turns = []
    for seed in range(60):
        world.begin(seed)
        poses = {name: task.pose(world.physics, prop) for name, prop in task.props.items()}
        turns.append(np.arctan2(poses["mug"][1, 0], poses["mug"][0, 0]))
        for name, T in poses.items():
            (x, y), front = T[:2, 3], name in ("mug", "pen", "banana")
            low, high = FRONT_Y if front else BACK_Y
            assert low - 1e-6 <= y <= high + 1e-6
            inside = [a - 1e-6 <= x <= b + 1e-6 for a, b in (FRONT_X if front else BACK_X)]
            cells[name].add(inside.index(True))
        covered = [task.footprint(task.props[name], T) for name, T in poses.items()]
        assert min(gap(a, b) for i, a in enumerate(covered) for b in covered[:i]) > 0.009
    assert all(found == {0, 1, 2} for found in cells.values())
    assert np.ptp(turns) > 5.0
    world.advance(START_POSE)
    assert task.at_rest(world.physics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "slip_m", "options"), [(0, 0.0, {"table_height": 0.04}), (33, 0.0, {}), (9, 0.02, {})]
)
def test_the_expert_succeeds_with_one_arm_or_both_and_after_a_slip(
    world: TaskEnvironment, task: MugOnPlate, seed: int, slip_m: float, options: dict[str, float]
) -> None:
    recording = record_episode(world, MugOnPlateExpert(), seed, slip_m=slip_m, options=options)
    assert recording.success, recording.error
    assert {1, 2} <= set(recording.arrays["stage"].tolist())
    moved = np.ptp(recording.arrays["action"], axis=0)
    used = [arm for arm in ALOHA.arms if moved[ALOHA.revolute_joints[arm]].max() > 0.3]
    assert len(used) == (2 if seed == 33 else 1)


@pytest.mark.parametrize(
    ("prop", "size", "floor"),
    [
        (Mug(), (0.118, 0.094, 0.083), 0.005),
        (Holder(), (0.09, 0.09, 0.107), 0.005),
        (Pen(), (0.0179, 0.185, 0.0155), None),
    ],
    ids=["mug", "holder", "pen"],
)
def test_sizes_are_those_of_aloha_sim_and_vessels_are_hollow(
    prop: Prop, size: tuple[float, float, float], floor: float | None
) -> None:
    physics = mjcf.Physics.from_mjcf_model(prop.mjcf_model)
    model, data = physics.model.ptr, physics.data.ptr
    corners = np.array(list(product((-1, 1), repeat=3)))
    boxes = zip(data.geom_xpos, data.geom_xmat.reshape(-1, 3, 3), model.geom_aabb, strict=True)
    shapes = [at + (aabb[:3] + corners * aabb[3:]) @ turn.T for at, turn, aabb in boxes]
    points = np.concatenate(
        [shape for shape, kind in zip(shapes, model.geom_contype, strict=True) if kind]
    )
    np.testing.assert_allclose(np.ptp(points, axis=0), size, atol=0.0015)
    if floor is not None:
        down = mujoco.mj_ray(
            model, data, np.array([0.01, 0.0, 0.2]), -Z, None, 1, -1, np.zeros(1, np.int32)
        )
        assert down == pytest.approx(0.2 - floor, abs=1e-6)
        walls = sum(model.geom_aabb[:, 3] > 0.03)
        assert walls >= 16
