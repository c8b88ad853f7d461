"""Unknown robot models are refused, and published ones that are incomplete or of other arms."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.sim import menagerie_files

from stringline.sim.robots.arm_appearance import RobotModel
from stringline.sim.robots.robot_model import set_robot_model
from stringline.sim.robots.workcells import ALOHA_CELL


def missing_folder(folder: Path) -> None:
    (folder / "aloha").rename(folder / "elsewhere")


def missing_mesh(folder: Path) -> None:
    (folder / "aloha" / "assets" / "wrist.stl").unlink()


def broken(folder: Path) -> None:
    (folder / "aloha" / "aloha.xml").write_text("<mujoco><worldbody></mujoco>")


def changed(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "aloha" / "aloha.xml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (
            missing_folder,
            (
                r"MENAGERIE_ROOT is '.*', but .*/aloha has no aloha.xml. Set MENAGERIE_ROOT to a "
                r"copy "
                r"of github.com/"
            ),
        ),
        (missing_mesh, "aloha.xml needs the mesh .*/aloha/assets/wrist.stl, which does not exist."),
        (broken, r"aloha.xml cannot be read as a MuJoCo model: .*"),
        (
            changed("left/wrist_link", "left/waist_link"),
            r"There is no body in .*aloha.xml 'left/wrist_link'. Did you mean 'left/wa",
        ),
        (changed('"left/elbow"', '"left/elbows"'), "'left/elbow'. Did you mean 'left/elbows'"),
        (
            changed('pos="0.2 0 0"', 'pos="0.203 0 0"'),
            r"aloha.xml describes other arms than ours: the pose of its body "
            r"'left/lower_forearm_link' differs from our 'left/lower_forearm_link' by 3.0 mm and "
            r"0.0 degrees; allowed: 1 mm and 0.1 degrees.",
        ),
        (
            changed('"left/forearm_roll" axis="1 0 0"', '"left/forearm_roll" axis="1 0 0.01"'),
            r"describes other arms than ours: .* 'left/lower_forearm_link' by 0.0 mm and "
            r"[01].\d degrees;",
        ),
    ],
)
def test_unusable_files_are_refused_with_their_names(
    spoil: Callable[[Path], None], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    menagerie_files.write_aloha(tmp_path / "aloha")
    spoil(tmp_path)
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    with pytest.raises(ValueError, match=complaint):
        set_robot_model(ALOHA_CELL.robot(), "menagerie")


def test_unknown_robot_models_are_refused() -> None:
    robot = ALOHA_CELL.robot()
    with pytest.raises(ValueError, match="is no robot.model 'menagery'. Did you mean 'menagerie'"):
        set_robot_model(robot, cast("RobotModel", "menagery"))
    robot.embodiment = replace(robot.embodiment, name="bench_arm")
    with pytest.raises(ValueError, match="no meshes for the embodiment 'bench_arm'"):
        set_robot_model(robot, "menagerie")
