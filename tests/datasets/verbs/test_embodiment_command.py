"""`stringline-data embodiment` writes a file with the same kinematics, shows and compares it."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from tests.datasets.embodiments.robot_files import HOME, UR5E_JOINTS, write_ur5e

from stringline import Contract, EpisodeAttributes, EpisodeStore, Matrix, load_embodiment, pose
from stringline.datasets import data
from stringline.datasets.contract.contract import ActionDimension

Command = Callable[..., str]


@pytest.fixture
def embodiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Calls the verb in a folder of its own, and returns its output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["stringline-data", "embodiment", *arguments])
        ended: object = 0
        try:
            data.main()
        except SystemExit as end:
            ended = end.code or 0
        shown = capsys.readouterr()
        assert ended == code, shown.err
        return shown.out + shown.err

    return call


def test_the_written_file_has_the_kinematics_of_the_model(
    tmp_path: Path, embodiment: Command
) -> None:
    write_ur5e(tmp_path / "ur5e.urdf", fingers=True)
    shown = embodiment("model=ur5e.urdf", "output=lab/my_arm.yaml", "name=lab")
    for expected in (
        "lab: ur5e.urdf, 10 links, 8 joints, 1 arm, ",
        "elbow_joint                 arm     revolute    -3.142 to 3.142 rad     3.14      150",
        "Gripper frame of arm: tool0, forwards along its z, pads close along y; at home at (",
        "Gripper of arm: joint left_finger_joint, 0 closed, 0.04 open.",
        "layout.grippers={left_finger_joint: {closed: 0, opened: 0.04}}",
        "Frames behind the last joints: tool0, link_6.",
        "Written to lab/my_arm.yaml.",
        "Picture: lab/my_arm.png.",
        "stringline-data import",
    ):
        assert expected in shown
    ours, written = (load_embodiment(name) for name in ("ur5e.urdf", "lab/my_arm.yaml"))
    assert written.name == "lab"
    q = np.random.default_rng(0).uniform(ours.lower, ours.upper, (20, 7))
    assert written.forward_kinematics(q)["arm"] == pytest.approx(
        ours.forward_kinematics(q)["arm"], abs=1e-9
    )
    assert len(written.capsule_mounts) == len(ours.capsule_mounts)
    for one, other in zip(written.capsule_mounts, ours.capsule_mounts, strict=True):
        assert one.link == other.link
        assert 0 < one.radius - other.radius < 3e-4, "rounded outwards"
    assert imread(tmp_path / "lab" / "my_arm.png").ndim == 3
    again = embodiment("model=lab/my_arm.yaml")
    assert "lab: ur5e.urdf" in again


def test_options_choose_frames_and_limits_are_written(tmp_path: Path, embodiment: Command) -> None:
    path = write_ur5e(tmp_path / "ur5e.urdf")
    path.write_text(path.read_text().replace('lower="-3.1416" upper="3.1416" ', ""))
    path.write_text(path.read_text().replace('elbow_joint" type="revolute"', 'elbow_joint" type="continuous"'))  # fmt: skip  # noqa: E501
    embodiment("model=ur5e.urdf", "tcp=link_6", "base=link_1", "output=arm.yaml")
    arm = load_embodiment("arm.yaml")
    assert [joint.name for joint in arm.joints] == list(UR5E_JOINTS[1:])
    text = (tmp_path / "arm.yaml").read_text()
    assert "elbow_joint: {limits: [-6.283, 6.283]" in text
    assert "# The model has no limits." in text
    shown = embodiment("model=ur5e.urdf", "tcp=link_7", "output=arm.yaml", code=2)
    assert "no gripper frame (tcp) 'link_7'. Did you mean" in shown
    shown = embodiment("model=arm.yaml", "output=other.yaml", code=2)
    assert "which is such a file already. Omit output" in shown
    shown = embodiment("model=arm.yaml", "tcp=link_5", code=2)
    assert "tcp are entries of arm.yaml" in shown


def recordings(path: Path, T_tool: Matrix) -> EpisodeStore:
    """Writes an episode with joints in another order, and poses of a tool behind tool0."""
    arm = load_embodiment("ur5e.urdf")
    random = np.random.default_rng(0)
    q = HOME + random.uniform(-0.3, 0.3, (12, 6))
    # x of a gripper is z of tool0, and its y is x.
    T_gripper_tool0 = pose(rotation=np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))
    T_base_tool0 = arm.forward_kinematics(q)["arm"] @ T_gripper_tool0
    joints = tuple(reversed(UR5E_JOINTS))
    action = tuple(ActionDimension(name, "arm", "joint") for name in joints)
    contract = Contract("ur5e", "base", 10.0, (), joints, ("arm",), action)
    recorded = T_base_tool0 @ T_tool
    arrays: dict[str, np.ndarray] = {
        "time": np.arange(12) / 10,
        "joints/position": q[:, ::-1].astype(np.float32),
        "action": q[:, ::-1].astype(np.float32),
        "T_base_gripper/arm": recorded.astype(np.float32),
        "series/position": recorded[:, :3, 3].astype(np.float32),
    }
    store = EpisodeStore.create(path)
    store.write(arrays, EpisodeAttributes(contract, "test", seed=0))
    return store


def test_recorded_poses_are_compared(tmp_path: Path, embodiment: Command) -> None:
    write_ur5e(tmp_path / "ur5e.urdf")
    recordings(tmp_path / "same", pose())
    shown = embodiment("model=ur5e.urdf", "recordings=same")
    assert "Recorded poses of arm: 12 steps of same." in shown
    assert "The kinematics agree with the recorded poses to 0.0 mm." in shown
    assert "tool0                             0.0 mm      0.0 mm     0.0 deg" in shown
    recordings(tmp_path / "tool", pose((0, 0, 0.12)))
    for option in ((), ("poses=position",)):
        shown = embodiment("model=ur5e.urdf", "recordings=tool", *option)
        assert "differ from the recorded poses by 120.0 mm; allowed: 5 mm. The nearest" in shown
    shown = embodiment("model=ur5e.urdf", "recordings=tool", "poses=place", code=2)
    assert "no recorded poses 'series/place'. Did you mean 'series/position'" in shown
