"""gym-aloha as a third-party environment: states bit by bit, cameras, and the expert."""

from collections.abc import Iterator, Mapping
from importlib import metadata, util
from typing import Any

import mujoco
import numpy as np
import pytest
from gym_aloha.env import AlohaEnv

from stringline.datasets.contract.contract import check_observation
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.embodiments.gym_aloha import (
    FINGERS,
    GYM_ALOHA,
    NORMALISED,
    normalised_of_opening,
)
from stringline.datasets.embodiments.transforms import inverse
from stringline.sim.rollout.world_interface import World
from stringline.sim.worlds.gym_aloha import GRIPPERS, VIEWS
from stringline.sim.worlds.third_party_environment import (
    CameraView,
    ThirdPartyCameras,
    ThirdPartyEnvironment,
)
from stringline.sim.worlds.world_registry import (
    instruction_of,
    open_third_party,
    open_world,
)

CUBE, INSERTION = "gym_aloha_transfer_cube", "gym_aloha_insertion"


@pytest.fixture(scope="module")
def world() -> Iterator[ThirdPartyEnvironment]:
    """TransferCube with all cameras."""
    world = open_third_party(CUBE, cameras=list(VIEWS), image_size=96, time_limit_s=8.0)
    yield world
    world.close()


class Blind(AlohaEnv):  # type: ignore[misc]
    """gym-aloha's own environment without images."""

    def _make_env_task(self, task_name: str) -> Any:
        env = super()._make_env_task(task_name)
        env.task.get_observation = lambda physics: {
            "qpos": env.task.get_qpos(physics),
            "images": {"top": np.zeros(1)},
        }
        return env


@pytest.mark.parametrize(("name", "task"), [(CUBE, "transfer_cube"), (INSERTION, "insertion")])
def test_states_and_rewards_are_those_of_its_own_environment_bit_by_bit(
    name: str, task: str
) -> None:
    ours, theirs = open_third_party(name, cameras=()), Blind(task, obs_type="pixels_agent_pos")
    rng = np.random.default_rng(0)
    for seed in (4, 1_000_000):
        ours.begin(seed)
        observation, _ = theirs.reset(seed=seed)
        for _ in range(25):
            action = GYM_ALOHA.home + rng.uniform(-0.3, 0.3, 14)
            action[GRIPPERS] = rng.uniform(0, 1, 2)
            commanded = action.copy()
            commanded[GRIPPERS] = normalised_of_opening(action[GRIPPERS])
            ours.advance(action)
            observation, reward, *_ = theirs.step(commanded)
            np.testing.assert_array_equal(ours.physics.get_state(), theirs._env.physics.get_state())
            assert ours.adapter.stage == reward
        position = ours.joints()
        revolute = np.delete(np.arange(14), GRIPPERS)
        np.testing.assert_array_equal(position[revolute], observation["agent_pos"][revolute])
        left_fingers = ours.physics.data.qpos[[6, 14]]  # It observes those only.
        np.testing.assert_allclose(
            FINGERS.opening(NORMALISED.travel(observation["agent_pos"][GRIPPERS])),
            FINGERS.opening(left_fingers),
        )
    ours.close()


def test_observations_fit_the_contract(world: ThirdPartyEnvironment) -> None:
    assert isinstance(world, World)
    world.begin(3)
    check_observation(world.observe(), world.contract)
    assert world.task.name == CUBE
    assert world.contract.embodiment == "gym_aloha"
    assert world.contract.control_hz == 50.0
    assert EMBODIMENTS["gym_aloha"] is GYM_ALOHA
    assert instruction_of(CUBE, {}) == world.task.instruction
    assert [camera.name for camera in world.contract.cameras] == list(VIEWS)


def test_grippers_and_their_gaps_are_where_the_body_says(world: ThirdPartyEnvironment) -> None:
    world.begin(0)
    rng, fingers = np.random.default_rng(1), ("10_left_gripper_finger", "10_right_gripper_finger")
    model, data, ends = world.physics.model.ptr, world.physics.data.ptr, np.zeros(6)
    for opening in (0.2, 0.9):
        target = GYM_ALOHA.home + rng.uniform(-0.2, 0.2, 14)
        target[GRIPPERS] = opening
        for _ in range(40):
            world.advance(target)
        seen = world.observe(cameras=False)
        np.testing.assert_allclose(seen["joints/position"][GRIPPERS], opening, atol=0.03)
        for arm, place in GYM_ALOHA.grippers.items():
            T_base_link = world.pose(f"vx300s_{arm}/gripper_link")
            T = GYM_ALOHA.forward_kinematics(world.joints())[arm]
            np.testing.assert_allclose(T, seen[f"T_base_gripper/{arm}"], atol=1e-6)
            np.testing.assert_allclose(
                (inverse(T_base_link) @ T)[:3, 3], (0.13, 0.0, 0.0), atol=2e-5
            )
            a, b = (
                mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, f"vx300s_{arm}/{finger}")
                for finger in fingers
            )
            gap = mujoco.mj_geomDistance(model, data, a, b, 0.2, ends)
            assert FINGERS.opening(0.0224 + gap / 2) == pytest.approx(
                world.joints()[place], abs=1e-4
            )


def test_every_camera_sees_the_cube_where_its_geometry_puts_it(
    world: ThirdPartyEnvironment,
) -> None:
    """A camera that looks down on it shows its red top in the right pixel, at the right depth."""
    world.begin(0)
    seen, found = world.observe(), set()
    T_base_box = world.pose("box")
    top = T_base_box @ np.array([0.0, 0.0, 0.02, 1.0])
    for camera in VIEWS:
        x, y, z = (inverse(seen[f"T_base_camera/{camera}"].astype(np.float64)) @ top)[:3]
        u, v, _ = seen[f"intrinsics/{camera}"] @ np.array([x, y, z]) / z
        if z < 0.02 or not (1 < u < 95 and 1 < v < 95):
            continue
        red = seen[f"rgb/{camera}"][int(v), int(u)].astype(int)
        if red[0] < 2 * max(red[1:]):  # Something is in front of it.
            continue
        found.add(camera)
        assert seen[f"depth/{camera}"][int(v), int(u)] == pytest.approx(1000 * z, abs=8)
    assert {"overhead", "angle"} <= found
    for mount in GYM_ALOHA.cameras:
        np.testing.assert_allclose(
            seen[f"T_base_camera/{mount.name}"], mount.T_parent_camera, atol=1e-6
        )


def test_frames_come_at_their_own_rate_and_repeat_between(world: ThirdPartyEnvironment) -> None:
    world.begin(2)
    times, due = [], []
    for _ in range(9):
        due.append(world.frame_due)
        times.append(float(world.observe()["time/overhead"]))
        world.advance(GYM_ALOHA.home)
    assert due == [step % 4 == 0 for step in range(9)]
    np.testing.assert_allclose(times, [0, 0, 0, 0, 0.08, 0.08, 0.08, 0.08, 0.16])


def test_unstable_physics_fails_the_episode_and_not_the_next_one(
    world: ThirdPartyEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    world.begin(1)
    world.physics.data.qvel[0] = 1e12
    result = world.advance(GYM_ALOHA.home)
    assert (result.success, result.expired, result.unstable) == (False, True, True)
    assert f"The physics of {CUBE} became unstable" in caplog.text
    check_observation(world.observe(cameras=False), world.contract, cameras=False)
    world.begin(1)
    assert not world.advance(GYM_ALOHA.home).unstable


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cameras": ["top"]}, "no camera 'top'"),
        ({"control_hz": 25.0}, f"control_hz is 25.0; {CUBE} has 50.0 actions per second"),
        ({"frame_hz": 12.0}, "frame_hz is 12.0; it must divide control_hz"),
        ({"time_limit_s": 0.0}, r"time_limit_s must be a number above 0 \(got 0.0\)"),
        ({"image_size": 2000}, "The image size is 2000x2000; allowed: 1x1 to 1024x1024"),
    ],
)
def test_settings_out_of_range_are_refused(settings: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_world(CUBE, **{"cameras": ["overhead"], **settings})


def test_options_and_seeds_out_of_range_are_refused(world: ThirdPartyEnvironment) -> None:
    with pytest.raises(
        ValueError, match=f"no option of the task '{CUBE}' 'table_height'. Allowed: none"
    ):
        world.begin(0, {"table_height": 0.02})
    with pytest.raises(ValueError, match=f"no option of the task '{CUBE}' 'table_height'"):
        instruction_of(CUBE, {"table_height": 0.02})
    with pytest.raises(ValueError, match=r"The seed is 4294967296; .* takes 0 to 4294967295"):
        world.begin(2**32)
    with pytest.raises(
        ValueError, match="no task 'gym_aloha_transfer_cup'. Did you mean 'gym_aloha_transfer_cube'"
    ):
        open_world("gym_aloha_transfer_cup")


def test_errors_explain_the_installation_of_the_right_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "version", lambda package: "0.1.5")
        with pytest.raises(
            ValueError,
            match=r'gym-aloha 0.1.5 is installed; .* needs 0.1.3. .*"stringline\[third-party\]"',
        ):
            open_world(CUBE)
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "gym_aloha" else find(name))
    with pytest.raises(
        ValueError,
        match=r'gym-aloha is not installed. Run: pip install "stringline\[third-party\]"',
    ):
        open_world(INSERTION)


def test_a_camera_that_the_model_lacks_is_named(world: ThirdPartyEnvironment) -> None:
    cameras = ThirdPartyCameras(
        ["overhead"], {"overhead": CameraView("topp", 45.0)}, (32, 32), np.eye(4)
    )
    with pytest.raises(ValueError, match=r"camera of the third-party model.*'topp'.*'top'"):
        cameras.look_at(world.physics)
