"""Arms of other packages are driven through a class derived from `ArmBackend`."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from tests.datasets.extensions.conftest import own_trust, write_module

from stringline import ALOHA
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.embodiments.embodiment_record import record_of
from stringline.datasets.embodiments.transforms import pose
from stringline.datasets.extensions.trust import UntrustedPackageError
from stringline.real_robot.deploy import NOT_DONE
from stringline.real_robot.incident import emulator_of
from stringline.real_robot.robots.backends import robot_backend
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_settings import RobotSettings

__all__ = ["own_trust", "write_module"]

CONFIGS = Path(__file__).parents[3] / "configs"
WriteModule = Callable[[str, str], Path]

ARMS = """
from dataclasses import replace

from stringline import ALOHA, ArmBackend
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator

class Bare(ArmBackend):
    embodiment = ALOHA

    def __init__(self, answer_timeout_s=0.5, bus_watchdog_s=0.0):
        self.settings = {"answer_timeout_s": answer_timeout_s, "bus_watchdog_s": bus_watchdog_s}

    def driver(self, ports, *, period_s, lock_step, read_only, still_grippers=False):
        return AlohaDriver(ports, **self.settings, read_only=read_only)

class Emulated(Bare):
    def emulator(self, **settings):
        return Emulator(**settings)

class WithoutCapsules(Bare):
    embodiment = replace(ALOHA, capsule_mounts=())

class Other: pass
"""


def robot_of(*overrides: str) -> RobotSettings:
    """Returns the robot of a command line of stringline-deploy."""
    deploy = Configuration(CONFIGS, "deploy", "stringline-deploy").composed(overrides)
    plain = OmegaConf.to_container(deploy, resolve=True)
    assert isinstance(plain, dict)
    return RobotSettings.of(plain["robot"])


def test_a_class_is_a_robot_with_its_arguments_as_options(write_module: WriteModule) -> None:
    write_module("own_arms", ARMS)
    ports = ("+robot.ports.left=/dev/left", "+robot.ports.right=/dev/right")
    settings = robot_of("robot=own_arms:Bare", "robot.driver.answer_timeout_s=0.2", *ports)
    assert (settings.backend, settings.emulated) == ("own_arms:Bare", False)
    assert settings.driver == {"answer_timeout_s": 0.2, "bus_watchdog_s": 0.0}
    factory = RobotFactory(settings)
    assert factory.embodiment is ALOHA
    assert factory.emulator() is None
    assert factory.limits().velocity.shape == (len(ALOHA.joints),)
    made = factory.backend.driver(settings.ports, period_s=0.01, lock_step=False, read_only=True)
    assert type(made).__name__ == "AlohaDriver"


def test_wrong_classes_and_arguments_are_reported(write_module: WriteModule) -> None:
    write_module("own_arms", ARMS)
    for backend, driver, message in (
        ("own_arms:Other", {}, "own_arms:Other is not a class derived from ArmBackend"),
        ("own_arms:Bear", {}, "no robot in own_arms 'Bear'. Did you mean 'Bare'"),
        ("own_arms:Bare", {"baud": 1}, "'baud'. Its arguments: answer_timeout_s, bus_watchdog_s"),
        ("os:system", {}, "'os' is part of Python"),
    ):
        with pytest.raises(ValueError, match=message):
            robot_backend(None, "one", driver, backend)
    with pytest.raises(ValueError, match=r"Bare has no emulator; set robot.emulator=null"):
        robot_backend(None, "one", {}, "own_arms:Bare").emulator()


def test_a_policy_of_an_arm_from_a_file_fits_the_arm(write_module: WriteModule) -> None:
    write_module("own_arms", ARMS)
    factory = RobotFactory(robot_of("robot=own_arms:Bare"))
    plain = factory.contract()
    trained = replace(plain, kinematics=record_of(ALOHA))
    assert trained.incompatibilities(factory.contract(trained)) == []
    assert plain.incompatibilities(factory.contract(plain)) == []
    moved = replace(plain, kinematics=record_of(replace(ALOHA, home=ALOHA.home + 0.1)))
    assert moved.incompatibilities(factory.contract(moved)) == []
    chain, *others = ALOHA.chains
    longer = replace(chain, T_last_gripper=chain.T_last_gripper @ pose((0.01, 0.0, 0.0)))
    other = replace(plain, kinematics=record_of(replace(ALOHA, chains=(longer, *others))))
    [reason] = other.incompatibilities(factory.contract(other))
    assert "kinematics: those of 'aloha' are required" in reason
    assert "different: chains" in reason


def test_arms_without_capsules_are_refused(write_module: WriteModule) -> None:
    write_module("own_arms", ARMS)
    factory = RobotFactory(robot_of("robot=own_arms:WithoutCapsules"))
    with pytest.raises(ValueError, match="aloha has no capsules.*capsule_mounts"):
        factory.limits()


def test_a_log_cannot_name_a_class_of_a_package_that_is_not_trusted(
    write_module: WriteModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = write_module("own_arms", ARMS)
    header = {"robot": {"backend": "own_arms:Emulated"}}
    with pytest.raises(UntrustedPackageError, match="The log needs own_arms:Emulated"):
        emulator_of(header)
    assert not mark.exists()
    monkeypatch.setenv("STRINGLINE_TRUST", "own_arms")
    assert emulator_of(header) is not None


@pytest.mark.stress
def test_emulated_arms_of_another_package_are_deployed(tmp_path: Path) -> None:
    (tmp_path / "own_arms.py").write_text(ARMS)
    path = os.pathsep.join([str(tmp_path), str(CONFIGS.parent / ".src")])
    code = "from stringline.datasets.command.entry_points import deploy; deploy()"
    done = subprocess.run(
        [sys.executable, "-c", code, "+robot.backend=own_arms:Emulated", "task.time_limit_s=0.4"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, NOT_DONE), done.stderr
    assert "Recorded as hand_over_banana" in done.stdout
