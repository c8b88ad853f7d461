"""Objects of all forms can be held at their grasps; success needs an object held up."""

import mujoco
import numpy as np
import pytest
from tests.sim.episodes import stay

from stringline import IIWA14, KukaPick, TaskEnvironment, Vector, pose, record_episode
from stringline.datasets.contract.contract import check_observation
from stringline.sim.evaluation.results import limit_hits
from stringline.sim.experts.kuka_experts import KukaBimanualPickExpert, KukaPickExpert
from stringline.sim.props import objects as forms
from stringline.sim.props.objects import FORMS
from stringline.sim.tasks.kuka_tasks import KukaBimanualPick
from stringline.sim.tasks.placement import AWAY_M

TASK = KukaPick.name
WORLD = {"image_size": 16, "time_limit_s": 20.0}


def lift(world: TaskEnvironment, task: KukaPick, seed: int, height: float) -> Vector:
    """Runs the expert until the object is held at a height, and returns the last action."""
    expert = KukaPickExpert(paces=(0.8, 0.8))
    world.begin(seed)
    expert.reset(world, np.random.default_rng(seed))
    action = IIWA14.home
    while world.task.stage < 1 or task.clearance(world.physics) < height:
        action = expert.act(world)
        assert not world.advance(action).expired
    return action


def test_observations_fit_the_contract_of_one_arm(world: TaskEnvironment) -> None:
    observation, _ = world.reset(seed=0)
    check_observation(observation, world.contract)
    assert world.observation_space.contains(observation)
    assert world.contract.embodiment == "iiwa14"
    assert [camera.name for camera in world.contract.cameras] == ["overhead", "wrist"]
    assert observation["joints/position"].shape == (8,)
    q = world.task.robot.positions(world.physics)
    for name, T_base_camera in IIWA14.camera_poses(q).items():
        np.testing.assert_allclose(observation[f"T_base_camera/{name}"], T_base_camera, atol=1e-6)
    assert observation["depth/wrist"].max() > 0


def test_there_are_many_forms_and_pads_meet_them_where_they_can_be_held(
    world: TaskEnvironment, task: KukaPick
) -> None:
    """Rays from both sides meet each form half its width from the grasp, and the table below."""
    assert len(FORMS) >= 20
    assert {part.kind for form, _ in FORMS.values() for part in form.parts} == {
        "box",
        "cylinder",
        "capsule",
        "sphere",
    }
    world.begin(0)
    model, data = world.physics.model.ptr, world.physics.data.ptr
    hit = np.zeros(1, np.int32)
    seen = set()
    for seed in range(400):
        if len(seen) == len(FORMS):
            break
        world.begin(seed)
        item = task.object
        if item.name in seen:
            continue
        seen.add(item.name)
        mujoco.mj_forward(model, data)
        T_base_item = task.pose(world.physics, item)
        assert item.lowest(T_base_item) == pytest.approx(0.0, abs=1e-9)
        own = set(world.physics.bind(item.shapes).element_id)
        for found in item.holds:
            assert found.width <= forms.WIDEST
            middle = T_base_item[:3, :3] @ found.point + T_base_item[:3, 3]
            for across in (
                T_base_item[:3, :3] @ found.across,
                -T_base_item[:3, :3] @ found.across,
            ):
                if abs(across[2]) > 0.5:
                    continue
                start = middle + (found.width / 2 + 0.01) * across
                far = mujoco.mj_ray(model, data, start, -across, None, 1, -1, hit, None)
                assert far == pytest.approx(0.01, abs=0.0015), item.name
                assert hit[0] in own
    assert seen == set(FORMS)


def test_a_point_that_no_bar_covers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"No bar covers \(0.5, 0\) m"):
        forms.plan(0.03, [(0, 0, 0.1, 0.03)], [(0.5, 0, "y")])


def test_starts_fill_their_ranges_and_other_objects_stay_away(
    world: TaskEnvironment, task: KukaPick
) -> None:
    places = []
    for seed in range(60):
        world.begin(seed)
        T = task.pose(world.physics, task.object)
        places.append((*T[:2, 3], np.degrees(np.arctan2(T[1, 0], T[0, 0]))))
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    lowest, highest = np.array([0.46, -0.2, -180]), np.array([0.68, 0.2, 180])
    assert (low >= lowest - 1e-9).all()
    assert (high <= highest + 1e-9).all()
    assert (high - low > 0.85 * (highest - lowest)).all()
    for seed in range(0, 60, 6):
        world.begin(seed)
        T = task.pose(world.physics, task.object)
        stay(world, seconds=0.3)
        assert np.abs(task.pose(world.physics, task.object)[:3, 3] - T[:3, 3]).max() < 0.002, (
            task.object.name
        )
        assert task.at_rest(world.physics), task.object.name
        away = [
            task.pose(world.physics, other)[2, 3]
            for other in task.objects
            if other is not task.object
        ]
        np.testing.assert_allclose(away, AWAY_M, atol=1e-6, err_msg=task.object.name)
        assert list(task.props) == [task.object.name]


@pytest.mark.parametrize(("seed", "height"), [(5, 0.1), (6, -0.1)])
def test_the_expert_picks_at_every_height_of_the_table_within_the_limits(
    world: TaskEnvironment, seed: int, height: float
) -> None:
    recording = record_episode(world, KukaPickExpert(), seed, options={"table_height": height})
    assert recording.success, recording.error
    stages = recording.arrays["stage"].tolist()
    assert set(stages) >= {0, 1, 2}
    assert stages == sorted(stages)
    assert limit_hits(recording.arrays["action"], world.contract) == 0.0


def test_the_expert_retakes_a_slipped_object(world: TaskEnvironment) -> None:
    recording = record_episode(world, KukaPickExpert(), 2, slip_m=0.02)
    assert recording.success, recording.error


def test_an_object_counts_once_it_is_held_high_enough(
    world: TaskEnvironment, task: KukaPick
) -> None:
    low = lift(world, task, 1, 0.04)
    result = stay(world, low, 1.2)
    assert (result.success, result.stage) == (False, 2)
    assert 0.02 < task.clearance(world.physics) < 0.1
    high = lift(world, task, 1, 0.11)
    result = stay(world, high, 1.5)
    assert (result.success, result.stage) == (True, 3)


@pytest.mark.parametrize(("amplitude", "success"), [(0.1, False), (0.005, True)])
def test_a_fast_object_does_not_count_and_a_trembling_one_does(
    world: TaskEnvironment, task: KukaPick, amplitude: float, success: bool
) -> None:
    high = lift(world, task, 1, 0.12)
    result, fastest = world.advance(high), 0.0
    for step in range(75):
        action = high.copy()
        action[0] += amplitude * np.sin(0.25 * step)
        if not result.success:
            result = world.advance(action)
            fastest = max(fastest, task.speed(world.physics, task.object))
    assert task.contact_state(world.physics).held("arm", task.object.name)
    assert result.success is success
    assert fastest > (0.02 if success else 0.2)


def test_a_high_object_must_be_held(world: TaskEnvironment, task: KukaPick) -> None:
    world.begin(1)
    task.place(world.physics, task.object, pose((0.55, 0.1, 0.4)))
    task.suspend(world.physics, task.object, suspended=True)
    mujoco.mj_forward(world.physics.model.ptr, world.physics.data.ptr)
    result = stay(world, seconds=1.0)
    assert task.clearance(world.physics) > 0.3
    assert task.at_rest(world.physics)
    assert (result.success, result.stage) == (False, 0)


def test_the_table_is_no_higher_than_the_cell_allows(world: TaskEnvironment) -> None:
    with pytest.raises(ValueError, match=r"table_height must be .* -0.1 to 0.1 m \(got 0.12"):
        world.begin(0, {"table_height": 0.12})


@pytest.mark.slow
def test_of_two_arms_the_near_one_picks() -> None:
    task = KukaBimanualPick()
    world = TaskEnvironment(task, cameras=(), time_limit_s=20.0)
    used = set()
    for seed in range(20):
        world.begin(seed)
        x = task.pose(world.physics, task.object)[0, 3]
        near = "left" if x < 0 else "right"
        if abs(x) < 0.1 or near in used:
            continue
        recording = record_episode(world, KukaBimanualPickExpert(), seed)
        assert recording.success, recording.error
        assert task.contact_state(world.physics).held(near, task.object.name)
        used.add(near)
    world.close()
    assert used == {"left", "right"}
