"""The bring-up of a robot: in each mode the steps come in the order that safety needs."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.real_robot.deployment.test_policy_deployment import saved

from stringline import ALOHA, TaskSettings
from stringline.real_robot.calibration.calibration_session import CalibrationSession
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.cameras.cameras import CameraHandle, Cameras
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.policy_deployment import PolicyDeployment
from stringline.real_robot.deployment.teleop_deployment import TeleopDeployment
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaLeaders
from stringline.real_robot.emulated_evaluation.loop_evaluation import open_lock_step_robot
from stringline.real_robot.emulated_evaluation.real_time_runner import (
    RealTimeRunner,
    real_time_emulator,
)
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.operator.checklist import Checklist, CheckResult, StrictChecklist
from stringline.real_robot.robots.robot_factory import RobotFactory

PORTS_AND_TORQUE = ("open ports", "all passed", "torque", "all passed")
REAL_TIME = "robot.lock_step=false"
ONE_CAMERA = "task.cameras=[overhead]"


class Still:
    """A policy without cameras that is never run."""

    contract = ALOHA.contract([], 50.0)

    def session(self, seed: int) -> "Still":
        return self

    def plan(self, observation: object) -> Any:
        raise AssertionError


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the steps of a bring-up, each when it begins."""
    recorded: list[str] = []

    def record(owner: type, name: str, step: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def recording(*arguments: Any, **keywords: Any) -> Any:
            recorded.append(step)
            return method(*arguments, **keywords)

        monkeypatch.setattr(owner, name, recording)

    record(RobotFactory, "check", "check files")
    record(Emulator, "start", "emulator")
    record(Cameras, "__enter__", "cameras")
    record(CameraHandle, "wait", "check camera")
    record(DeviceProcess, "connect", "open ports")
    record(AlohaLeaders, "connect", "leaders")
    record(Checklist, "check_passed", "all passed")
    record(DeviceProcess, "arm", "torque")
    record(Cameras, "supervise", "restart cameras")
    return recorded


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("session") / "checkpoint")


def settings(*overrides: str) -> dict[str, Any]:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = ["record=null", "log.folder=null", *overrides]
        plain = OmegaConf.to_container(compose("deploy", overrides=chosen), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def note_run(steps: list[str], monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Replaces the steps after the bring-up by a note."""

    def run(*_: Any) -> bool:
        steps.append("run")
        return True

    monkeypatch.setattr(owner, name, run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "cameras"),
    [
        ((), False),
        (("mode=dry_run",), False),
        ((REAL_TIME,), True),
        ((REAL_TIME, "mode=shadow"), True),
    ],
    ids=["lock_step", "dry_run", "real_time", "shadow"],
)
def test_a_policy(
    steps: list[str],
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: Path,
    overrides: tuple[str, ...],
    *,
    cameras: bool,
) -> None:
    note_run(steps, monkeypatch, PolicyDeployment, "_run")
    chosen = settings(f"checkpoint={checkpoint}", "execute_steps=24", *overrides)
    assert PolicyDeployment(DeploymentSettings.of(chosen)).run()
    seen = ("cameras", "check camera") if cameras else ()
    after = ("restart cameras",) if cameras else ()
    expected = ["check files", "emulator", *seen, *PORTS_AND_TORQUE, *after, "run"]
    assert [step for step, _ in groupby(steps)] == expected  # Several cameras take a step each.


@pytest.mark.slow
def test_leader_arms(steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note_run(steps, monkeypatch, TeleopDeployment, "_lead")
    kept = (f"record={tmp_path / 'store'}", f"log.folder={tmp_path / 'log'}")
    chosen = settings("mode=teleop", "robot.leaders.hand=null", REAL_TIME, ONE_CAMERA, *kept)
    assert TeleopDeployment(DeploymentSettings.of(chosen)).run()
    assert steps == [
        "check files",
        "emulator",
        "cameras",
        "check camera",
        "open ports",
        "emulator",
        "leaders",
        *PORTS_AND_TORQUE[1:],
        "restart cameras",
        "run",
    ]


@pytest.mark.slow
def test_a_calibration(steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note_run(steps, monkeypatch, CalibrationSession, "_conclude")
    monkeypatch.setattr(CalibrationSession, "_capture", lambda *_: ())
    chosen = settings(
        "mode=calibrate",
        "calibration=kuka_wrist",
        "robot=kuka_emulated",
        "task=kuka_board_on_table",
        "robot.lock_step=false",
        "robot.cameras=[wrist]",
        f"calibration.file={tmp_path / 'calibration.yaml'}",
        f"output={tmp_path}",
    )
    plan = CalibrationSettings.of_deployment(chosen)
    assert CalibrationSession(DeploymentSettings.of(chosen), plan).run()
    assert steps == [
        "check files",
        "all passed",
        "emulator",
        "cameras",
        "check camera",
        *PORTS_AND_TORQUE,
        "restart cameras",
        "run",
    ]


@pytest.mark.slow
def test_the_real_protocol(steps: list[str], tmp_path: Path) -> None:
    """Without a report: the first error ends the bring-up."""
    plain = settings("robot.lock_step=false", "task.cameras=[]")
    chosen = DeploymentSettings.of(plain)
    emulator = real_time_emulator(chosen, Still(), tmp_path)
    with emulator, RealTimeRunner(chosen, Still(), emulator, tmp_path) as runner:
        assert runner.robot.device.latest() is not None
    assert steps == ["emulator", *PORTS_AND_TORQUE]
    steps.clear()
    with ExitStack() as stack:
        open_lock_step_robot(stack, Still.contract, TaskSettings("hand_over_banana"))
    assert steps == ["emulator", *PORTS_AND_TORQUE]


@pytest.mark.slow
def test_a_failed_check_is_reported_and_ends_the_bring_up_before_torque(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, checkpoint: Path
) -> None:
    chosen = settings(f"checkpoint={checkpoint}", "task.control_hz=25")
    with pytest.raises(ValueError, match="Not started"):
        PolicyDeployment(DeploymentSettings.of(chosen)).run()
    assert steps == ["check files", "emulator", "open ports", "all passed"]


def test_the_value_of_a_check_is_typed_and_raises_all_failures() -> None:
    checklist = Checklist()
    good = checklist.result("number", lambda: 3, lambda value: f"{value} it is")
    assert good.passed
    assert good.value + 1 == 4

    def fail() -> int:
        raise ValueError("it is broken")

    bad: CheckResult[int] = checklist.result("other", fail)
    assert not bad.passed
    with pytest.raises(ValueError, match=r"Not started\.\nother: it is broken"):
        _ = bad.value
    with pytest.raises(ValueError, match="it is broken"):
        StrictChecklist().result("other", fail)
