"""The world agrees with the contract and the kinematics, and is determined by its seed."""

import re
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pytest
from dm_control import composer
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray
from tests.sim.in_process import roll_out

from stringline import ALOHA, ActionChunk, TaskEnvironment
from stringline.datasets.contract.contract import Array, check_observation
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.sim.rendering.rendering import Rendering
from stringline.sim.tasks.hand_over_tasks import HandOverBanana
from stringline.sim.tasks.task_registry import make_task

TASK = "hand_over_banana"
ALL_CAMERAS = tuple(mount.name for mount in ALOHA.cameras)
WORLD = {"image_size": 96}


def wave(step: int) -> NDArray[np.float64]:
    """Small motions of all joints."""
    return START_POSE + 0.2 * np.sin(0.1 * step + np.arange(14))


def test_observations_fit_the_contract(world: TaskEnvironment) -> None:
    observation, info = world.reset(seed=0)
    check_observation(observation, world.contract)
    assert world.observation_space.contains(observation)
    assert info == {
        "success": False,
        "stage": 0,
        "stages": world.task.stages,
        "time": 0.0,
        "unstable": False,
    }
    assert "rgb/overhead" not in world.observe(cameras=False)


@pytest.mark.filterwarnings(
    "ignore:.*:UserWarning"
)  # Gymnasium recommends normalised actions; ours are joint targets.
def test_it_is_a_gymnasium_environment(world: TaskEnvironment) -> None:
    check_env(world, skip_render_check=True)


def test_an_episode_is_a_function_of_seed_and_actions(world: TaskEnvironment) -> None:
    def episode(seed: int) -> dict[str, Array]:
        world.begin(seed)
        for step in range(12):
            world.advance(wave(step))
        return world.observe()

    first = episode(3)
    other = episode(4)
    again = episode(3)
    for key, value in first.items():
        np.testing.assert_array_equal(value, again[key], err_msg=key)
    assert (first["rgb/overhead"] != other["rgb/overhead"]).any()


def test_another_world_draws_the_same_frame_from_a_snapshot(world: TaskEnvironment) -> None:
    other = TaskEnvironment(make_task(TASK), image_size=96)
    for one in (world, other):
        one.begin(3)
    for step in range(24):
        world.advance(wave(step))
    seen, drawn = world.observe(), other.frame_of(world.snapshot(), world.time)
    other.close()
    assert {key.split("/")[0] for key in drawn} == {
        "rgb",
        "depth",
        "intrinsics",
        "time",
        "T_base_camera",
    }
    assert all((drawn[key] == seen[key]).all() for key in drawn)


def test_images_are_as_old_as_the_last_frame(world: TaskEnvironment) -> None:
    world.reset(seed=0)
    times = [float(world.step(wave(step))[0]["time/table"]) for step in range(9)]
    np.testing.assert_allclose(times, [0, 0, 0, 0.08, 0.08, 0.08, 0.08, 0.16, 0.16])


def test_untouched_props_stay_at_rest(world: TaskEnvironment) -> None:
    world.begin(1)
    assert isinstance(world.task, HandOverBanana)
    props = (world.task.banana, world.task.bowl)
    before = [world.task.pose(world.physics, prop) for prop in props]
    results = [world.advance(START_POSE) for _ in range(100)]
    after = [world.task.pose(world.physics, prop) for prop in props]
    np.testing.assert_allclose([T[:2, 3] for T in after], [T[:2, 3] for T in before], atol=0.005)
    np.testing.assert_allclose([T[2, 3] for T in after], [T[2, 3] for T in before], atol=0.001)
    assert (results[-1].success, results[-1].stage) == (False, 0)


def test_joints_follow_their_targets(world: TaskEnvironment) -> None:
    world.begin(0)
    target = START_POSE + 0.1
    target[[6, 13]] = 0.7
    for _ in range(100):
        world.advance(target)
    np.testing.assert_allclose(world.state()["joints/position"], target, atol=0.03)


def test_twice_the_control_rate_is_the_same_world() -> None:
    slow, fast = (
        TaskEnvironment(make_task(TASK), cameras=(), control_hz=hz) for hz in (50.0, 100.0)
    )
    for world, repeat in ((slow, 1), (fast, 2)):
        world.begin(7)
        for step in range(20):
            for _ in range(repeat):
                world.advance(wave(step))
    assert slow.time == fast.time == pytest.approx(0.4)
    np.testing.assert_allclose(
        slow.state()["joints/position"], fast.state()["joints/position"], atol=1e-6
    )


def test_the_task_runs_in_dm_controls_own_environment() -> None:
    env = composer.Environment(make_task(TASK), random_state=0)
    env.reset()
    step = env.step(START_POSE)
    assert step.reward == 0.0


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(7), "An action has 14 dimensions"),
        (np.full(14, np.nan), "not finite at 'left/waist'"),
    ],
)
def test_invalid_actions_are_refused(world: TaskEnvironment, action: Array, message: str) -> None:
    world.begin(0)
    with pytest.raises(ValueError, match=message):
        world.advance(action)


def absurd_speed(world: TaskEnvironment) -> None:
    world.physics.data.qvel[:] = 1e8


def absurd_place(world: TaskEnvironment) -> None:
    world.physics.data.qpos[-7:-4] = 1e11


def no_number(world: TaskEnvironment) -> None:
    world.physics.data.qpos[3] = np.nan


@pytest.mark.parametrize("disturb", [absurd_speed, absurd_place, no_number])
def test_unstable_physics_fails_one_episode_only(
    world: TaskEnvironment,
    disturb: Callable[[TaskEnvironment], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    world.reset(seed=8)
    expected = [world.step(wave(step)) for step in range(3)][-1]
    world.reset(seed=8)
    disturb(world)
    info: dict[str, object] = {}
    for step in range(5):
        observation, reward, terminated, truncated, info = world.step(wave(step))
        assert reward == 0.0
        assert terminated is False
        assert truncated is True
        assert info["success"] is False
        assert info["unstable"] is True
        check_observation(observation, world.contract)
        assert world.observation_space.contains(observation)
    assert info["time"] == pytest.approx(0.1)
    messages = [
        record.getMessage() for record in caplog.records if record.name.startswith("stringline")
    ]
    assert len(messages) == 1
    assert re.fullmatch(
        r"The physics of hand_over_banana became unstable \(.*mjWARN_BADQ.*\) 0.02 s into the "
        r"episode of seed 8, "
        r"which counts as failed.",
        messages[0],
    )
    world.reset(seed=8)
    again = [world.step(wave(step)) for step in range(3)][-1]
    assert not again[3]
    assert not again[4]["unstable"]
    for key, value in expected[0].items():
        np.testing.assert_array_equal(value, again[0][key], err_msg=key)


def test_an_unstable_episode_ends_a_rollout(world: TaskEnvironment) -> None:
    def plan(observation: Mapping[str, Array]) -> ActionChunk:
        if observation["time"] > 0.1:
            absurd_speed(world)
        times = (float(observation["time"]) + 0.02 * np.arange(5)).astype(np.float64)
        return ActionChunk(time=times, action=np.tile(START_POSE.astype(np.float32), (5, 1)))

    done = roll_out(world, plan, 0, execute_steps=5)
    assert (done.success, done.time_s) == (False, pytest.approx(0.22))


@pytest.mark.slow
def test_unknown_arguments_are_refused(world: TaskEnvironment) -> None:
    with pytest.raises(ValueError, match="'hand_over_bannana'. Did you mean 'hand_over_banana'"):
        make_task("hand_over_bannana")
    with pytest.raises(ValueError, match=r"frame_hz is 15.0; it must divide control_hz"):
        TaskEnvironment(make_task(TASK), frame_hz=15.0)
    with pytest.raises(ValueError, match="There is no camera 'overheat'. Did you mean 'overhead'"):
        TaskEnvironment(make_task(TASK), cameras=("overheat",))
    with pytest.raises(ValueError, match="is no rendering mode 'prety'. Did you mean 'pretty'"):
        TaskEnvironment(make_task(TASK), rendering=cast("Rendering", "prety"))
    with pytest.raises(ValueError, match="The size of images is 2000x128"):
        TaskEnvironment(make_task(TASK), image_size=(2000, 128))
    with pytest.raises(ValueError, match=r"image_size is \[1, 2, 3\]"):
        TaskEnvironment(make_task(TASK), image_size=[1, 2, 3])
    with pytest.raises(ValueError, match=r"time_limit_s must be a number above 0 \(got nan\)"):
        TaskEnvironment(make_task(TASK), time_limit_s=np.nan)
    with pytest.raises(ValueError, match="render_mode is 'human'; allowed: 'rgb_array' and None"):
        TaskEnvironment(make_task(TASK), render_mode="human")
    with pytest.raises(ValueError, match="task option 'table_hight'. Did you mean 'table_height'"):
        world.reset(seed=0, options={"table_hight": 0.02})
    with pytest.raises(ValueError, match=r"table_height must be .*got 0\.5"):
        world.reset(seed=0, options={"table_height": 0.5})
