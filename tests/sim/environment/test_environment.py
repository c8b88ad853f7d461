"""The world agrees with the contract and the kinematics, and is determined by its seed."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import numpy as np
import pytest
from dm_control import composer
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.contract.validation import check_observation
from stringline.datasets.embodiments.aloha import ALOHA, START_POSE
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.rendering.rendering import RENDERINGS, Rendering
from stringline.sim.rollout.rollout import roll_out
from stringline.sim.tasks.hand_over_tasks import HandOverBanana
from stringline.sim.tasks.task_registry import make_task

TASK = "hand_over_banana"
ALL_CAMERAS = tuple(mount.name for mount in ALOHA.cameras)


@pytest.fixture(scope="module")
def world() -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(make_task(TASK), image_size=96)
    yield world
    world.close()


def wave(step: int) -> NDArray[np.float64]:
    """Small motions of all joints."""
    return START_POSE + 0.2 * np.sin(0.1 * step + np.arange(14))


def points(observation: dict[str, Array], camera: str) -> NDArray[np.float64]:
    """Returns where the pixels with depth are (N, 3) in the base frame, in metres."""
    depth = observation[f"depth/{camera}"].astype(np.float64) * 0.001
    rows, columns = np.nonzero(depth)
    pixels = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))])
    in_camera = np.linalg.inv(observation[f"intrinsics/{camera}"]) @ pixels * depth[rows, columns]
    T_base_camera = observation[f"T_base_camera/{camera}"]
    return (T_base_camera[:3, :3] @ in_camera + T_base_camera[:3, 3:]).T


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


def test_camera_poses_are_those_of_the_kinematics_while_moving(world: TaskEnvironment) -> None:
    world.begin(0)
    for step in range(16):
        world.advance(wave(step))
    observation = world.observe()
    q = world.task.robot.positions(world.physics)
    for name, T_base_camera in ALOHA.camera_poses(q).items():
        np.testing.assert_allclose(observation[f"T_base_camera/{name}"], T_base_camera, atol=1e-6)


@pytest.mark.parametrize("height", [0.0, 0.03])
def test_depth_lies_on_the_table_where_nothing_stands(
    world: TaskEnvironment, height: float
) -> None:
    observation, _ = world.reset(seed=0, options={"table_height": height})
    found = 0
    for camera in ALL_CAMERAS:
        x, y, z = points(observation, camera).T
        bare = (np.abs(x) < 0.15) & (y > 0.26) & (y < 0.37) & (z < 0.15)
        found += int(bare.sum())
        assert np.abs(z[bare] - height).max(initial=0) < 0.003, camera
    assert found > 300


def test_a_pixel_shows_what_is_at_its_place(world: TaskEnvironment) -> None:
    observation, _ = world.reset(seed=5)
    place = points(observation, "overhead")
    colours = observation["rgb/overhead"][np.nonzero(observation["depth/overhead"])].astype(int)
    yellow = place[(colours[:, 0] > 120) & (colours[:, 2] < 90)]
    assert isinstance(world.task, HandOverBanana)
    banana = world.task.banana
    middle = world.task.pose(world.physics, banana)[:3, 3]
    assert len(yellow) > 20
    assert (
        np.linalg.norm(yellow[:, :2].mean(axis=0) - middle[:2]) < 0.015
    )  # It is bent, and seen from the side.
    assert yellow[:, 2].max() == pytest.approx(2 * banana.radius, abs=0.004)


def test_another_world_draws_what_the_cameras_of_this_one_saw(world: TaskEnvironment) -> None:
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


def test_what_nobody_touches_lies_still(world: TaskEnvironment) -> None:
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
def test_actions_that_mean_nothing_are_refused(
    world: TaskEnvironment, action: Array, message: str
) -> None:
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
def test_an_unstable_episode_is_failed_and_the_next_one_clean(
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
        assert (reward, terminated, truncated, info["success"], info["unstable"]) == (
            0.0,
            False,
            True,
            False,
            True,
        )
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


def test_segmentation_says_what_a_pixel_shows() -> None:
    world = TaskEnvironment(make_task(TASK), image_size=(60, 80), segmentation=True)
    observation, _ = world.reset(seed=5)
    assert world.segments == ("nothing", "table", "left", "right", "banana", "bowl")
    assert world.observation_space.contains(observation)
    assert isinstance(world.task, HandOverBanana)
    for camera in ALL_CAMERAS:
        shown = observation[f"segmentation/{camera}"]
        assert shown.shape == (60, 80)
        near = observation[f"depth/{camera}"] > 0
        assert (shown[near] > 0).all()
        visible = shown[near]
        place = points(observation, camera)
        assert np.abs(place[visible == world.segments.index("table"), 2]).max(initial=0) < 0.003
        assert (place[visible == world.segments.index("left"), 0] < 0).all()
        assert (place[visible == world.segments.index("right"), 0] > 0).all()
        for prop in (world.task.banana, world.task.bowl):
            middle = world.task.pose(world.physics, prop)[:3, 3]
            distance = np.linalg.norm(
                place[visible == world.segments.index(prop.name)] - middle, axis=1
            )
            assert distance.max(initial=0) < prop.reach + 0.03, (camera, prop.name)
    counts = np.bincount(observation["segmentation/overhead"].ravel(), minlength=6)
    assert (counts > 20).all()  # All are in view, and so is the floor beside the table.
    world.close()


def test_pretty_images_differ_in_their_colours_only() -> None:
    seen: list[dict[str, Array]] = []
    for rendering in RENDERINGS:
        world = TaskEnvironment(
            make_task(TASK),
            image_size=(48, 64),
            cameras=("overhead", "table"),
            segmentation=True,
            rendering=rendering,
        )
        seen.append(world.reset(seed=2)[0])
        world.close()
    fast, pretty = seen
    for key, value in fast.items():
        if not key.startswith("rgb/"):
            np.testing.assert_array_equal(value, pretty[key], err_msg=key)
    dark, table = (
        (pretty["rgb/overhead"].astype(int) - fast["rgb/overhead"]).sum(axis=2),
        fast["segmentation/overhead"] == 1,
    )
    assert (dark[table] < -30).sum() > 10  # Shadows fall on the table,
    assert np.abs(dark).mean() < 12  # and the rest looks the same.


def test_images_need_not_be_square() -> None:
    world = TaskEnvironment(make_task(TASK), image_size=(48, 64), cameras=("table",))
    observation, _ = world.reset(seed=0)
    check_observation(observation, world.contract)
    square = TaskEnvironment(make_task(TASK), image_size=48, cameras=("table",))
    np.testing.assert_array_equal(
        square.reset(seed=0)[0]["depth/table"], observation["depth/table"][:, 8:-8]
    )
    image = world.render()
    assert image is not None
    np.testing.assert_array_equal(image, observation["rgb/table"])
    for env in (world, square):
        env.close()


def test_arguments_that_mean_nothing_are_refused(world: TaskEnvironment) -> None:
    with pytest.raises(
        ValueError, match="There is no task 'hand_over_bannana'. Did you mean 'hand_over_banana'"
    ):
        make_task("hand_over_bannana")
    with pytest.raises(ValueError, match=r"frame_hz is 15.0; it must divide control_hz"):
        TaskEnvironment(make_task(TASK), frame_hz=15.0)
    with pytest.raises(ValueError, match="There is no camera 'overheat'. Did you mean 'overhead'"):
        TaskEnvironment(make_task(TASK), cameras=("overheat",))
    with pytest.raises(
        ValueError, match="There is no rendering mode 'prety'. Did you mean 'pretty'"
    ):
        TaskEnvironment(make_task(TASK), rendering=cast("Rendering", "prety"))
    with pytest.raises(
        ValueError, match="The size of images is 2000x128; allowed: 1x1 to 1024x1024"
    ):
        TaskEnvironment(make_task(TASK), image_size=(2000, 128))
    with pytest.raises(
        ValueError,
        match=r"image_size is \[1, 2, 3\]; allowed: a whole number, or two for rows and columns",
    ):
        TaskEnvironment(make_task(TASK), image_size=[1, 2, 3])
    with pytest.raises(ValueError, match="time_limit_s is nan; allowed: above 0"):
        TaskEnvironment(make_task(TASK), time_limit_s=np.nan)
    with pytest.raises(ValueError, match="render_mode is 'human'; allowed: 'rgb_array' and None"):
        TaskEnvironment(make_task(TASK), render_mode="human")
    with pytest.raises(
        ValueError, match="There is no task option 'table_hight'. Did you mean 'table_height'"
    ):
        world.reset(seed=0, options={"table_hight": 0.02})
    with pytest.raises(ValueError, match=r"table_height is 0.5 m; allowed"):
        world.reset(seed=0, options={"table_height": 0.5})
