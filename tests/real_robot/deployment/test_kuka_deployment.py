"""The command on emulated KUKA arms, over FRI and over LCM."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.real_robot.network_namespace import own_network

from stringline import IIWA14, Camera, open_policy
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.checkpoints.load import build_policy, save_policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.policy_deployment import PolicyDeployment
from stringline.real_robot.emulated_evaluation.real_time_runner import check_embodiment
from stringline.real_robot.robots.robot_settings import RobotSettings

SMALL = (
    "policy.dim=32",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=2",
    "policy.chunk=30",
    "policy.noise_samples=2",
    "policy.sampling_steps=2",
)


def settings(*overrides: str, robot: str = "kuka_emulated") -> dict[str, Any]:
    chosen = ["task=kuka_pick", f"robot={robot}", "record=null", "log.folder=null", *overrides]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = OmegaConf.to_container(compose("deploy", overrides=chosen), resolve=True)
    assert isinstance(composed, dict)
    return {str(key): value for key, value in composed.items()}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy that stays near the home pose."""
    folder = tmp_path_factory.mktemp("kuka") / "checkpoint"
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = [
            "+policy=diffusion",
            "+encoder=cayley",
            "+coordinates=metric",
            "+depth=colours",
            "policy.observation_encoder.cameras=[overhead,wrist]",
        ]
        model = OmegaConf.to_container(compose(overrides=[*chosen, *SMALL]).policy, resolve=True)
    assert isinstance(model, dict)
    plain = {str(key): value for key, value in model.items()}
    torch.manual_seed(0)
    contract = IIWA14.contract(
        [Camera(name, 32, 32, "simulated") for name in ("overhead", "wrist")], 50.0
    )
    rows = np.stack([IIWA14.home - 0.1, IIWA14.home + 0.1])
    measured = {key: statistics_of(lambda: iter([rows])) for key in ("action", "joints/position")}
    save_policy(folder, build_policy(plain, contract, Statistics(measured)), plain, {})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lock_step", "version"),
    [
        (True, ("robot.driver.version=1.11", "robot.driver.gripper.transport=null")),
        (False, ("robot.driver.version=2.5",)),
    ],
    ids=["lock_step", "clock"],
)
def test_an_episode_on_an_emulated_kuka_arm(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    lock_step: bool,
    version: tuple[str, ...],
) -> None:
    chosen = settings(
        f"checkpoint={checkpoint}",
        "task.time_limit_s=0.6",
        f"robot.lock_step={lock_step}",
        "execute_steps=24",
        *version,
    )
    chosen["robot"]["emulator"] |= {
        "good": 0.05,
        "most_missed": 200,
    }  # On a busy machine many answers are late.
    chosen["log"]["folder"] = None if lock_step else str(tmp_path / "incidents")
    PolicyDeployment(DeploymentSettings.of(chosen)).run()
    output = capsys.readouterr().out
    assert "Deploying to kuka_emulated" in output
    assert "ok      ports and servos" in output
    assert "The safety filter" in output
    assert "a controller has stopped its arm" not in output
    assert "Incident logs" not in output  # A new world is not an incident.


@pytest.mark.slow
def test_an_episode_on_an_emulated_kuka_arm_behind_drake_iiwa_driver_in_real_time(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = (
        f"checkpoint={checkpoint}",
        "task.time_limit_s=0.6",
        "robot.lock_step=false",
        "execute_steps=24",
    )
    soon = "+robot.emulator.clock_samples=20"  # A real program needs long to synchronise its clock.
    with own_network():
        chosen = settings(*overrides, soon, robot="kuka_lcm_emulated")
        PolicyDeployment(DeploymentSettings.of(chosen)).run()
    output = capsys.readouterr().out
    assert "Deploying to kuka_lcm_emulated" in output
    assert "ok      ports and servos" in output
    assert "The safety filter" in output
    assert "its driver program" not in output


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keeps processors busy, beside everything else."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


@pytest.mark.parametrize(
    "tries",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(10, marks=pytest.mark.stress),
    ],
)
@pytest.mark.parametrize("robot", ["kuka_emulated", "kuka_lcm_emulated"])
def test_on_a_busy_machine_arms_start_or_the_machine_is_named(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], robot: str, tries: int
) -> None:
    """With a load of 4: nine of ten starts are without a fault, or say what the cause is."""
    overrides = [
        f"checkpoint={checkpoint}",
        "task.time_limit_s=0.6",
        "robot.lock_step=false",
        "execute_steps=24",
    ]
    if robot == "kuka_lcm_emulated":
        overrides.append("+robot.emulator.clock_samples=20")
    good = 0
    for _ in range(tries):
        with own_network(), load(4):
            try:
                PolicyDeployment(DeploymentSettings.of(settings(*overrides, robot=robot))).run()
            except (ValueError, RuntimeError) as error:
                print(f"FAULT: {error}")
        output = capsys.readouterr().out
        print(output)
        good += "FAULT" not in output or "This computer is busy" in output
    assert good >= 0.9 * tries


def test_a_version_without_a_gripper_is_refused_before_anything_is_started() -> None:
    with pytest.raises(
        ValueError,
        match=r"FRI 1.11 has no inputs and outputs for a gripper. Set robot.driver",
    ):
        PolicyDeployment(DeploymentSettings.of(settings("robot.driver.version=1.11")))


def test_a_policy_for_other_arms_is_refused_in_real_time(checkpoint: Path) -> None:
    with pytest.raises(
        ValueError, match="The policy is for iiwa14; aloha_emulated is aloha: choose another robot"
    ):
        check_embodiment(
            open_policy(str(checkpoint))[0],
            RobotSettings(name="aloha_emulated", control_hz=50.0, device_hz=100.0, lock_step=False),
        )
