"""The adapter of DeepMind's aloha_sim on a small world with its interface (`stand_in/`)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from tests.sim.in_process import roll_out

from stringline.datasets.contract.contract import check_observation
from stringline.datasets.embodiments.aloha import ALOHA, opening_of_finger
from stringline.datasets.embodiments.transforms import inverse, pose
from stringline.sim.worlds.aloha_sim import (
    GRIPPERS,
    T_BASE_WORLD,
    opening_of_servo,
    servo_of_opening,
)
from stringline.sim.worlds.third_party_environment import ThirdPartyEnvironment
from stringline.sim.worlds.world_registry import (
    ALOHA_SIM,
    instruction_of,
    is_third_party,
    open_third_party,
    open_world,
)

STAND_IN = Path(__file__).parents[1] / "stand_in"
TASK = f"{ALOHA_SIM}turn_away"
CAMERAS = ("overhead", "wrist_left", "wrist_right", "table")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts the folder of the stand-in on Python's path."""
    monkeypatch.syspath_prepend(STAND_IN)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "aloha_sim"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def world() -> Iterator[ThirdPartyEnvironment]:
    """One world for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(STAND_IN)
        world = open_third_party(TASK, cameras=CAMERAS, image_size=[40, 48], time_limit_s=4.0)
    yield world
    world.close()


def theirs(world: ThirdPartyEnvironment) -> Any:
    """Returns aloha_sim's own current observation."""
    return world.adapter._observation  # type: ignore[attr-defined]


def swing(step: int) -> Any:
    """Returns an action that keeps everything moving."""
    action = ALOHA.home + 0.2 * np.sin(0.1 * step + np.arange(14))
    action[GRIPPERS] = 0.5 + 0.4 * np.sin(0.05 * step)
    return action


@pytest.mark.slow
def test_observations_have_our_contract_and_frame(world: ThirdPartyEnvironment) -> None:
    world.begin(0)
    seen = world.observe()
    check_observation(seen, world.contract)
    assert is_third_party(TASK)
    assert world.contract == ALOHA.contract(world.contract.cameras, 50.0)  # So our checkpoints fit.
    assert (world.task.name, world.task.instruction) == (TASK, "turn the right arm away")
    model, data = world.physics.model.ptr, world.physics.data.ptr
    for arm in ALOHA.arms:
        site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, f"{arm}\\gripper")
        T_world_gripper = pose(data.site_xpos[site], data.site_xmat[site].reshape(3, 3))
        np.testing.assert_allclose(
            T_BASE_WORLD @ T_world_gripper, seen[f"T_base_gripper/{arm}"], atol=1e-5
        )


def test_cameras_are_those_of_our_aloha(world: ThirdPartyEnvironment) -> None:
    """aloha_sim places the cameras on the wrists only if they are requested."""
    world.begin(0)
    seen = world.observe()
    for name, T in ALOHA.camera_poses(world.joints()).items():
        np.testing.assert_allclose(seen[f"T_base_camera/{name}"], T, atol=3e-3, err_msg=name)


def test_depth_is_that_of_its_physics(world: ThirdPartyEnvironment) -> None:
    """The depth at the centre of each image is that of a ray, although the sensor is wider."""
    world.begin(0)
    seen = world.observe()
    model, data, hit = world.physics.model.ptr, world.physics.data.ptr, np.zeros(1, np.int32)
    measured = 0
    for camera in CAMERAS:
        for row, column in ((20, 24), (4, 40), (36, 3)):
            K = seen[f"intrinsics/{camera}"].astype(np.float64)
            ray = np.array(
                [(column + 0.5 - K[0, 2]) / K[0, 0], (row + 0.5 - K[1, 2]) / K[1, 1], 1.0]
            )
            T_world_camera = inverse(T_BASE_WORLD) @ seen[f"T_base_camera/{camera}"].astype(
                np.float64
            )
            groups, way = np.array([1, 1, 1, 0, 0, 0], np.uint8), T_world_camera[:3, :3] @ ray
            distance = mujoco.mj_ray(model, data, T_world_camera[:3, 3], way, groups, 1, -1, hit)
            depth = int(seen[f"depth/{camera}"][row, column])
            if 0 < distance < 2.4 and depth:
                measured += 1
                assert depth == pytest.approx(1000 * distance, rel=0.02, abs=6), (
                    camera,
                    row,
                    column,
                )
    assert measured >= 6


def test_joints_and_images_have_the_delays_of_aloha_sim(world: ThirdPartyEnvironment) -> None:
    """Joints are its `joints_pos`; images and their geometry are 0.3 s old."""
    world.begin(5)
    poses = []
    for step in range(24):
        seen = world.observe()
        late = theirs(world)["joints_pos"].copy()
        late[GRIPPERS] = opening_of_servo(late[GRIPPERS])
        np.testing.assert_allclose(seen["joints/position"], late, atol=1e-5)
        poses.append(ALOHA.camera_poses(world.joints())["wrist_left"])
        captured = float(seen["time/wrist_left"])
        assert captured == pytest.approx(max(0, (step - 15) // 4 * 4) / 50)
        np.testing.assert_allclose(
            seen["T_base_camera/wrist_left"], poses[round(captured * 50)], atol=3e-3
        )
        assert world.frame_due == (step in {0, 19, 23})
        world.advance(swing(step))


def test_grippers_reach_the_commanded_openings(world: ThirdPartyEnvironment) -> None:
    np.testing.assert_allclose(
        opening_of_servo(np.array([-0.06135, 1.5155])), (0.0, 1.0), atol=1e-12
    )
    np.testing.assert_allclose(
        servo_of_opening(np.array([opening_of_finger(0.002), 1.0])), (-0.06135, 1.5155), atol=1e-9
    )
    world.begin(1)
    for opening in (1.0, 0.4, 0.0):
        action = ALOHA.home.copy()
        action[GRIPPERS] = opening
        for _ in range(30):
            world.advance(action)
        np.testing.assert_allclose(world.joints()[GRIPPERS], opening, atol=0.01)
    now, before = theirs(world), world.joints()
    speed = world.adapter.measure().velocity
    np.testing.assert_allclose(speed[:6], now["undelayed_joints_vel"][:6])
    world.advance(swing(0))
    np.testing.assert_allclose(
        (world.joints() - before)[GRIPPERS] > 0, world.adapter.measure().velocity[GRIPPERS] > 0
    )


def test_a_seed_is_the_episode_that_it_begins_with_that_seed(world: ThirdPartyEnvironment) -> None:
    from aloha_sim import task_suite  # type: ignore[import-not-found]

    env = task_suite.create_task_env("TurnAway", time_limit=80.0, random_state=7, cameras=())
    env.reset()
    world.begin(7)
    np.testing.assert_array_equal(world.physics.get_state(), env.physics.get_state())
    world.begin(8)
    assert (world.physics.get_state() != env.physics.get_state()).any()
    env.close()


def test_its_reward_is_success_and_ends_the_episode(world: ThirdPartyEnvironment) -> None:
    class Turn:
        def plan(self, observation: Any) -> Any:
            from stringline.policies.chunks.chunk import ActionChunk

            target = ALOHA.home.copy()
            target[7] = 0.8
            return ActionChunk(
                float(observation["time"]) + np.arange(10) / 50,
                np.tile(target.astype(np.float32), (10, 1)),
            )

    done = roll_out(world, Turn().plan, 3, execute_steps=10)
    assert (done.success, done.stage, done.unstable) == (True, 1, False)
    state = world.physics.get_state().copy()
    assert world.advance(ALOHA.home).success
    np.testing.assert_array_equal(world.physics.get_state(), state)


def test_unstable_physics_fails_the_episode(
    world: ThirdPartyEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    world.begin(2)
    world.physics.data.qvel[3] = 1e12
    result = world.advance(ALOHA.home)
    assert (result.success, result.expired, result.unstable) == (False, True, True)
    assert f"The physics of {TASK} became unstable" in caplog.text
    world.begin(2)
    assert not world.advance(ALOHA.home).unstable


def test_missing_parts_of_aloha_sim_are_named(
    world: ThirdPartyEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ValueError, match=f"no task of aloha_sim '{ALOHA_SIM}turn_awry'. Did you mean '{TASK}'"
    ):
        open_world(f"{ALOHA_SIM}turn_awry")
    with pytest.raises(ValueError, match="control_hz is 25.0; .* has 50.0 actions per second"):
        open_world(TASK, control_hz=25.0)
    with pytest.raises(ValueError, match=r"image_size is \[1, 2, 3\]"):
        ThirdPartyEnvironment(world.adapter, image_size=[1, 2, 3])
    with pytest.raises(
        ValueError,
        match=f"robot.model is 'menagerie'; {TASK} has arms of its own. Omit robot.model",
    ):
        ThirdPartyEnvironment(world.adapter, robot_model="menagerie")
    assert instruction_of(TASK, {}) == "turn the right arm away"
    from aloha_sim import task_suite  # type: ignore[import-not-found]

    monkeypatch.delattr(task_suite, "create_task_env")
    with pytest.raises(ValueError, match="aloha_sim.task_suite has no 'create_task_env'"):
        open_world(TASK)
    info = tmp_path / "aloha_sim-2.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: aloha_sim\nVersion: 2.0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="aloha_sim 2.0.0 is installed; Stringline needs 1.0.0"):
        open_world(TASK)


def test_the_error_without_aloha_sim_names_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(STAND_IN)])
    with pytest.raises(
        ValueError,
        match="aloha_sim is not installed. It is not on PyPI. Run: .*google-deepmind/aloha_sim",
    ):
        open_world(TASK)
