"""Keyposes of an environment with Cartesian actions, from its server to the end of an episode."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.real_robot.chains import chain
from tests.sim.interpreters.test_environment_server import HERE, opened

from stringline.datasets.embodiments.arm_commands import CartesianCommands, arm_commands
from stringline.datasets.loading.keyposes import (
    Keyposes,
    commanded_motion,
    find_keyposes,
    sequence_of,
)
from stringline.policies.execution.keypose_motion import KeyposeMotion, PredictedKeypose
from stringline.policies.execution.trajectories import MotionSettings, TaskSpace
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.worlds.remote_environment import RemoteEnvironment
from stringline.sim.worlds.world_registry import make_any_expert

REACHING = f"{HERE}reaching"


@pytest.fixture(scope="module")
def world() -> Iterator[RemoteEnvironment]:
    """A hand that is moved by steps of at most 2 cm."""
    with closing(opened(REACHING, cameras=[])) as world:
        yield world


def recorded(world: RemoteEnvironment, seed: int) -> Keyposes:
    found = record_episode(world, make_any_expert(REACHING), seed)
    assert found.success
    commands = arm_commands(world.contract)
    poses = found.arrays["T_base_gripper/arm"][:, None]
    return find_keyposes(commanded_motion(found.arrays["action"], commands, 20.0, poses))


def prediction_of(keyposes: Keyposes, row: int) -> PredictedKeypose:
    """Returns a keypose as a prediction without error."""
    acts = keyposes.acting[row].astype(float)
    ways = {
        name: getattr(keyposes, name)[row][:, None, :3, 3]
        for name in ("approach", "corner", "departure")
    }
    return PredictedKeypose(
        pose=keyposes.pose[row][:, None],
        share=np.ones((1, 1)),
        acts=acts,
        moves=acts,
        before=keyposes.before[row][:, None],
        after=keyposes.after[row][:, None],
        **ways,
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_the_keypose_of_an_expert_leads_to_success(world: RemoteEnvironment, seed: int) -> None:
    """The meaning of the numbers comes from the server: the size of a step, and what is closed."""
    keyposes = recorded(world, seed)
    assert sequence_of(keyposes, world.contract.arms) == "arm closes"
    commands = arm_commands(world.contract)
    assert isinstance(commands, CartesianCommands)
    assert commands.speed(commands.hands[0].position) == pytest.approx(0.4)
    assert keyposes.before[0, 0] == 1.0
    assert keyposes.after[0, 0] == 0.0
    world.begin(seed)
    space = TaskSpace(commands)
    motion = KeyposeMotion(space, 20.0, MotionSettings(), [0.0])
    result = None
    while result is None or not result.success:
        measured = space.measured(world.observe(cameras=False))
        targets = motion.targets(world.time, 12, measured, prediction_of(keyposes, 0))
        for action in space.actions(targets, measured)[:4]:
            result = world.advance(action)
        assert result is not None
        assert not result.expired


@pytest.mark.slow
def test_the_demo_runs_to_its_end_without_emulated_arms(tmp_path: Path) -> None:
    output = tmp_path / "demo"
    rates = ["task.control_hz=20", "task.frame_hz=10", "task.time_limit_s=3"]
    chain(output, f"task={REACHING}", *rates, "execute_steps=4").run()
    summary = json.loads((output / "summary.json").read_text())
    assert (summary["expert"]["trials"], summary["direct"]["trials"]) == (1, 1)
    assert "emulated" not in summary
    page = (output / "report.html").read_text()
    assert f"stringline-demo task={REACHING} " in page
    assert "stringline-deploy" not in page
