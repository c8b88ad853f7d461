"""gymnasium makes every task, alone or in a vector, the same to the pixel in every process."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.environment.gym_registration import environment_id
from stringline.sim.tasks.task_registry import TASKS

TASK = "stringline/HandOverBanana-v0"
NAMED_BY_MODULE = f"stringline.sim.environment.gym_registration:{TASK}"
SMALL: dict[str, Any] = {"cameras": ["overhead", "wrist_left"], "image_size": [24, 32]}

# gymnasium recommends normalised actions and bounded observations; ours are joint targets and poses
# in metres.
pytestmark = pytest.mark.filterwarnings("ignore:.*(recommend|infinity|-infinity).*:UserWarning")


def run(code: str, *, expect: int = 0, **environment: str) -> str:
    """Runs Python code in a fresh process and returns its output."""
    fresh = {
        key: value
        for key, value in os.environ.items()
        if key not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    }
    fresh |= {"PYTHONPATH": ".src", "MUJOCO_GL": os.environ.get("MUJOCO_GL", "")} | environment
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=fresh,
        check=False,
        timeout=60,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


def test_all_tasks_are_registered() -> None:
    assert {environment_id(name) for name in TASKS} <= set(gymnasium.registry)
    assert environment_id("hand_over_banana") == TASK
    assert environment_id("fmb_1") == "stringline/Fmb1-v0"
    with pytest.raises(ValueError, match="'hand_over_bannana'. Did you mean 'hand_over_banana'"):
        environment_id("hand_over_bannana")
    with pytest.raises(
        gymnasium.error.NameNotFound, match="HandOverBannana.*Did you mean: `HandOverBanana`"
    ):
        gymnasium.make("stringline/HandOverBannana-v0")


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(TASKS))
def test_tasks_can_be_made_and_their_observations_fit_their_space(task: str) -> None:
    env = gymnasium.make(environment_id(task), cameras=["overhead"], image_size=16)
    observation, info = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert isinstance(env.unwrapped, TaskEnvironment)
    home = env.unwrapped.embodiment.home.astype(np.float32)
    observation, reward, terminated, truncated, info = env.step(home)
    assert env.observation_space.contains(observation)
    assert (reward, terminated, truncated, info["unstable"]) == (0.0, False, False, False)
    assert env.unwrapped.task.name == task
    env.close()


@pytest.mark.slow
def test_registering_loads_neither_torch_nor_simulation_nor_graphics() -> None:
    code = """
import sys
import gymnasium
import stringline.sim.environment.gym_registration
assert "stringline/HandOverBanana-v0" in gymnasium.registry
heavy = ("torch", "mujoco", "dm_control", "OpenGL", "glfw")
assert not [name for name in sys.modules if name.split(".")[0] in heavy]
env = gymnasium.make("stringline/HandOverBanana-v0", cameras=[])
env.reset(seed=0)
assert "torch" not in sys.modules
"""
    run(code)


def test_gymnasiums_checker_passes() -> None:
    env = gymnasium.make(TASK, **SMALL, image_delay_s=0.1, joint_delay_s=0.02, segmentation=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(recommend|infinity).*")
        check_env(env.unwrapped)
    env.close()


def test_reset_takes_options_and_unknown_options_and_actions_are_refused() -> None:
    env = gymnasium.make(TASK, cameras=[], render_mode=None, disable_env_checker=True)
    env.reset(seed=0, options={"table_height": 0.02})
    assert isinstance(env.unwrapped, TaskEnvironment)
    assert env.unwrapped.task.table_height == 0.02
    with pytest.raises(ValueError, match="task option 'table_hight'. Did you mean 'table_height'"):
        env.reset(seed=0, options={"table_hight": 0.02})
    assert env.render() is None
    with pytest.raises(ValueError, match="An action has 14 dimensions"):
        env.step(np.zeros(7))
    with pytest.raises(ValueError, match="not finite at 'left/waist'"):
        env.step(np.full(14, np.nan))
    env.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cameras": ["overheat"]}, "There is no camera 'overheat'. Did you mean 'overhead'"),
        ({"joint_delay_s": -0.1}, "joint_delay_s is -0.1 s; allowed: 0 and the multiples"),
        ({"rendering": "pritty"}, "There is no rendering mode 'pritty'. Did you mean 'pretty'"),
        ({"render_mode": "human"}, "render_mode is 'human'; allowed: 'rgb_array' and None"),
    ],
)
def test_unknown_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gymnasium.make(TASK, **settings)


@pytest.mark.slow
def test_environments_of_a_vector_equal_single_ones() -> None:
    """Equal to the byte, in one process and in spawned processes after this one has drawn."""
    settings: dict[str, Any] = SMALL | {"segmentation": True}
    actions = [
        (START_POSE + 0.2 * np.sin(step + np.arange(14))).astype(np.float32) for step in range(6)
    ]
    env, alone = gymnasium.make(NAMED_BY_MODULE, **settings), list[dict[str, Array]]()
    for seed in (5, 6):
        env.reset(seed=seed)
        alone.append([env.step(action)[0] for action in actions][-1])
    env.close()
    assert any((alone[0][key] != value).any() for key, value in alone[1].items())
    makers = [partial(gymnasium.make, NAMED_BY_MODULE, **settings) for _ in range(2)]
    vectors: list[Callable[[], Any]] = [
        partial(SyncVectorEnv, makers),
        partial(AsyncVectorEnv, makers, context="spawn"),
    ]
    for make in vectors:
        envs = make()
        envs.reset(seed=[5, 6])
        together = [envs.step(np.tile(action, (2, 1)))[0] for action in actions][-1]
        assert together.keys() == alone[0].keys()
        for number, single in enumerate(alone):
            for key, value in single.items():
                np.testing.assert_array_equal(
                    together[key][number], value, err_msg=f"{type(envs).__name__} {number} {key}"
                )
        envs.close()


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["", "egl"])
def test_a_missing_graphics_driver_is_explained(driver: str) -> None:
    """The error occurs on import if MUJOCO_GL names a driver, else with the first image."""
    code = """
import gymnasium
import stringline.sim.environment.gym_registration
gymnasium.make("stringline/HandOverBanana-v0").reset(seed=0)
"""
    answer = run(code, expect=1, MUJOCO_GL=driver, MUJOCO_EGL_DEVICE_ID="99").splitlines()[-1]
    assert "OpenGL, which draws the images, is not available" in answer
    assert "MUJOCO_EGL_DEVICE_ID is '99': unset it" in answer
