"""Robots from a configuration: the pages that checks name, cameras, and appearance of the arms."""

import io
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.sim.menagerie_files import write_kuka

from stringline.real_robot.cameras.camera_settings import RobotCameras
from stringline.real_robot.emulators import emulate
from stringline.real_robot.emulators.program.emulator_server import kuka_world
from stringline.real_robot.emulators.program.emulator_settings import FriSettings
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_settings import RobotSettings
from stringline.real_robot.safety.limits import BUILT_IN, TIGHTENED

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("overrides", "page"),
    [
        (("robot=aloha",), "hardware-aloha.md"),
        (("task=kuka_pick", "robot=kuka"), "hardware-kuka.md"),
        (("task=kuka_bimanual_pick", "robot=kuka", "robot.arms=two"), "hardware-kuka.md"),
    ],
)
def test_a_missing_limits_file_is_reported_with_a_page_of_the_documentation(
    overrides: tuple[str, ...], page: str
) -> None:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        robot = OmegaConf.to_container(
            compose("deploy", overrides=list(overrides)).robot, resolve=True
        )
    assert isinstance(robot, dict)
    checklist = Checklist(io.StringIO())
    settings = RobotSettings.of({str(key): value for key, value in robot.items()})
    RobotFactory(settings).check(checklist, moving=True)
    with pytest.raises(ValueError, match=rf"limits file: real arms need one, .* See docs/{page}\."):
        checklist.check_passed()
    assert "limits_file" in (DOCS / page).read_text()


@pytest.mark.parametrize(
    ("robot", "task"),
    [("aloha", "hand_over_banana"), ("kuka", "kuka_pick"), ("kuka_lcm", "kuka_pick")],
)
def test_the_default_limits_are_those_of_the_configurations(robot: str, task: str) -> None:
    """Tighter ones were chosen by the user."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = compose("deploy", overrides=[f"task={task}", f"robot={robot}"]).robot
    found = OmegaConf.to_container(chosen, resolve=True)
    assert isinstance(found, dict)
    settings = RobotSettings.of({str(key): value for key, value in found.items()})
    limits = {name: limit for name, limit in settings.limits.items() if name in TIGHTENED}
    assert {**BUILT_IN, **settings.default_limits}.items() >= limits.items()


@pytest.mark.parametrize(
    ("robot", "transport"),
    [("aloha", ""), ("kuka", "fri"), ("kuka_lcm", "lcm")],
    ids=["aloha", "kuka", "kuka_lcm"],
)
def test_cameras_of_real_arms_are_given_on_the_command_line_or_in_a_file(
    robot: str, transport: str, tmp_path: Path
) -> None:
    task, name = ("hand_over_banana", "overhead") if not transport else ("kuka_pick", "wrist")
    file = tmp_path / "cameras.yaml"
    file.write_text(f'{name}: {{driver: realsense, serial: "218622270001"}}')
    plain = f"{name}: {{driver: realsense, serial: '218622270001', depth: true}}"
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for override, depth in (
            (f"robot.cameras_file={file}", None),
            (f"robot.cameras={{{plain}}}", "measured"),
        ):
            chosen = compose("deploy", overrides=[f"robot={robot}", f"task={task}", override]).robot
            found = OmegaConf.to_container(chosen, resolve=True)
            assert isinstance(found, dict)
            settings = RobotSettings.of({str(key): value for key, value in found.items()})
            (camera,) = RobotFactory(settings).contract().cameras
            assert (camera.name, camera.depth, camera.has_geometry) == (name, depth, True)


def test_two_realsense_cameras_without_serial_numbers_are_refused() -> None:
    one = {"driver": "realsense"}
    for cameras in (
        {"wrist": one, "overhead": {**one, "serial": "7"}},
        {"wrist": one, "overhead": one},
    ):
        with pytest.raises(
            ValueError,
            match=("2 RealSense cameras, but 'wrist'.*give each camera its serial"),
        ):
            RobotCameras(cameras)
    kept = {
        "wrist": one,
        "overhead": {**one, "source": "a.db3"},
    }  # A recording is not a connected camera.
    assert len(RobotCameras(kept).offered()) == 2


@pytest.mark.parametrize(
    ("robot", "task"), [("aloha_emulated", "hand_over_banana"), ("kuka_emulated", "kuka_pick")]
)
def test_emulated_arms_have_the_requested_appearance(robot: str, task: str) -> None:
    """The same appearance as in the simulation's own commands."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for model in ("primitives", "menagerie"):
            chosen = compose(
                "deploy", overrides=[f"robot={robot}", f"task={task}", f"robot.model={model}"]
            )
            assert chosen.robot.emulator.robot_model == model


@pytest.mark.slow
def test_an_emulated_world_shows_the_meshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kuka(tmp_path / "kuka_iiwa_14")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    seen = []
    for model in ("primitives", "menagerie"):
        settings = FriSettings(
            task="kuka_pick", cameras=("wrist",), image_size=24, robot_model=model
        )
        _, plant = kuka_world(settings)
        seen.append(plant.frames()["rgb/wrist"].copy())
        plant.close()
    assert (seen[0] != seen[1]).any()
    with pytest.raises(
        SystemExit, match=r"There is no robot.model 'menagery'. Did you mean 'menagerie'"
    ):
        emulate.main(["dynamixel", "--robot-model", "menagery", "--lock-step"])
