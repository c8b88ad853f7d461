"""Images, depth, segmentation and camera poses agree with the kinematics and the props."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, check_observation
from stringline.datasets.embodiments.aloha import ALOHA, START_POSE
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.rendering.rendering import RENDERINGS
from stringline.sim.tasks.hand_over_tasks import HandOverBanana
from stringline.sim.tasks.task_registry import make_task

TASK = "hand_over_banana"
ALL_CAMERAS = tuple(mount.name for mount in ALOHA.cameras)
WORLD = {"image_size": 96}


def points(observation: dict[str, Array], camera: str) -> NDArray[np.float64]:
    """Returns the points (N, 3) of the pixels with depth in the base frame, metres."""
    depth = observation[f"depth/{camera}"].astype(np.float64) * 0.001
    rows, columns = np.nonzero(depth)
    pixels = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))])
    in_camera = np.linalg.inv(observation[f"intrinsics/{camera}"]) @ pixels * depth[rows, columns]
    T_base_camera = observation[f"T_base_camera/{camera}"]
    return (T_base_camera[:3, :3] @ in_camera + T_base_camera[:3, 3:]).T


def test_camera_poses_are_those_of_the_kinematics_while_moving(world: TaskEnvironment) -> None:
    world.begin(0)
    for step in range(16):
        world.advance(START_POSE + 0.2 * np.sin(0.1 * step + np.arange(14)))
    observation = world.observe()
    q = world.task.robot.positions(world.physics)
    for name, T_base_camera in ALOHA.camera_poses(q).items():
        np.testing.assert_allclose(observation[f"T_base_camera/{name}"], T_base_camera, atol=1e-6)


@pytest.mark.parametrize("height", [0.0, 0.03])
def test_depth_of_the_bare_table_is_at_its_height(world: TaskEnvironment, height: float) -> None:
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


def test_segmentation_has_the_segment_of_each_pixel() -> None:
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
    dark = (pretty["rgb/overhead"].astype(int) - fast["rgb/overhead"]).sum(axis=2)
    table = fast["segmentation/overhead"] == 1
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
