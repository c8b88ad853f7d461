"""Imports of any arm: joints in the robot's order, gripper poses from its file, or one error."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.embodiments.robot_files import HOME, UR5E_JOINTS, write_ur5e
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.embodiments.embodiment_source import load_embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.vector_layout import (
    DescribedLayout,
    NamedLayout,
    VectorSpec,
    joint_arrays,
)

GRIP = {"gripper": {"closed": 0.0, "opened": 100.0}}
ORDER = (3, 6, 0, 5, 1, 4, 2)  # Of the joints and the gripper in the data set.
NAMES = (*UR5E_JOINTS, "gripper")
SHUFFLED = [NAMES[place] for place in ORDER]


@pytest.fixture(scope="module")
def urdf(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_ur5e(tmp_path_factory.mktemp("robot") / "ur5e.urdf"))


def values(count: int = 4) -> np.ndarray:
    """Returns positions (T, 7) in rad and openings, in the order of the robot."""
    random = np.random.default_rng(0)
    return np.concatenate(
        [HOME + random.uniform(-0.5, 0.5, (count, 6)), random.uniform(0, 1, (count, 1))], axis=1
    )


def foreign(positions: np.ndarray) -> np.ndarray:
    """Returns the values as the data set has them: degrees, percent, another order."""
    scaled = np.concatenate([np.degrees(positions[:, :6]), 100 * positions[:, 6:]], axis=1)
    return scaled[:, list(ORDER)]


def layout(urdf: str, **options: Any) -> NamedLayout:
    return NamedLayout(**{"grippers": GRIP, "angle_unit": "deg", "embodiment": urdf, **options})


def test_joints_get_the_robots_order_and_grippers_their_poses(urdf: str) -> None:
    meaning = layout(urdf).meaning(SHUFFLED, SHUFFLED)
    positions = values()
    arrays = joint_arrays(meaning, ("state", foreign(positions)), ("action", foreign(positions)))
    assert arrays["joints/position"] == pytest.approx(positions.astype(np.float32), abs=1e-5)
    assert arrays["action"] == pytest.approx(positions.astype(np.float32), abs=1e-5)
    robot = load_embodiment(urdf)
    expected = robot.forward_kinematics(positions[:, :6])["arm"]
    assert arrays["T_base_gripper/arm"] == pytest.approx(expected, abs=1e-5)
    rates = meaning.state.imported_rates(foreign(positions), foreign(positions))
    assert rates == pytest.approx(positions, abs=1e-4), "speeds as well"
    contract = meaning.contract((), 10.0)
    assert contract.joints == NAMES
    assert contract.arms == ("arm",)
    assert [dimension.kind for dimension in contract.action] == 6 * ["joint"] + ["gripper"]
    found = embodiment_of(contract)
    assert found is not None
    assert [joint.name for joint in found.joints] == list(NAMES)
    assert found.forward_kinematics(positions)["arm"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("names", "option"),
    [
        ([f"{name}.pos" for name in SHUFFLED], None),
        ([f"follower/{name.upper()}" for name in SHUFFLED], None),
        ([f"motor_{place}" for place in range(7)], list(SHUFFLED)),
        (
            ["a", *SHUFFLED[1:]],
            {"a": SHUFFLED[0]},
        ),
    ],
)
def test_names_are_compared_or_mapped(urdf: str, names: list[str], option: Any) -> None:
    gripper = {names[SHUFFLED.index("gripper")]: GRIP["gripper"]}
    meaning = layout(urdf, grippers=gripper, joints=option).meaning(names, names)
    positions = values()
    assert meaning.state.imported("state", foreign(positions)) == pytest.approx(positions, abs=1e-5)


def test_numbers_can_be_left_out_and_actions_can_lack_joints(urdf: str) -> None:
    state = ["force", *SHUFFLED]
    action = list(UR5E_JOINTS)
    meaning = layout(urdf, joints={"force": None}).meaning(state, action)
    positions = values()
    extended = np.concatenate([np.full((4, 1), 999.0), foreign(positions)], axis=1)
    assert meaning.state.imported("state", extended) == pytest.approx(positions, abs=1e-5)
    assert [dimension.name for dimension in meaning.contract((), 10.0).action] == action


def test_without_a_gripper_in_the_data_the_robot_has_none(tmp_path: Path) -> None:
    urdf = str(write_ur5e(tmp_path / "hand.urdf", fingers=True))
    bare = layout(urdf, grippers={}).meaning(UR5E_JOINTS, UR5E_JOINTS)
    assert bare.contract((), 10.0).joints == UR5E_JOINTS
    held = layout(urdf, grippers={"left_finger_joint": {"closed": 0, "opened": 0.04}})
    names = [*UR5E_JOINTS, "left_finger_joint"]
    assert held.meaning(names, names).contract((), 10.0).joints[-1] == "left_finger_joint"


def test_a_built_in_robot_needs_no_record() -> None:
    names = [joint.name for joint in IIWA14.joints]
    meaning = layout("iiwa14", grippers={names[-1]: "opening"}).meaning(names, names)
    contract = meaning.contract((), 10.0)
    assert contract.kinematics is None
    assert contract.arms == IIWA14.arms
    assert embodiment_of(contract) is IIWA14


def test_a_described_state_gets_gripper_poses_beside_cartesian_actions(urdf: str) -> None:
    action = [{"name": axis, "arm": "arm", "kind": "position", "unit": "m"} for axis in "xyz"]
    joints = [{"name": name, "arm": "any"} for name in reversed(UR5E_JOINTS)]
    described = DescribedLayout(action, joints, embodiment=urdf)
    meaning = described.meaning([f"n{place}" for place in range(6)], ["x", "y", "z"])
    positions = values()[:, :6]
    arrays = joint_arrays(meaning, ("state", positions[:, ::-1]), ("action", np.zeros((4, 3))))
    expected = load_embodiment(urdf).forward_kinematics(positions)["arm"]
    assert arrays["T_base_gripper/arm"] == pytest.approx(expected, abs=1e-5)
    assert [dimension.kind for dimension in meaning.contract((), 10.0).action] == 3 * ["position"]
    joints[0]["name"] = "wrist_4_joint"
    with pytest.raises(ValueError, match="no joint of ur5e 'wrist_4_joint'. Did you mean"):
        DescribedLayout(action, joints, embodiment=urdf).meaning(["n"] * 6, ["x", "y", "z"])


ERRORS: Mapping[str, tuple[dict[str, Any], list[str], str]] = {
    "unknown": (
        {},
        ["elbow_jont", *(name for name in NAMES if name != "elbow_joint")],
        r"no joint of ur5e 'elbow_jont'. Did you mean 'elbow_joint'.*layout.joints={elbow_jont: J",
    ),
    "numbered": (
        {"grippers": {"qpos_6": "opening"}},
        [f"qpos_{place}" for place in range(7)],
        r"numbers its joints; if they have the order.*layout.joints=\[shoulder_pan_joint,.*gripper",
    ),
    "missing": ({}, list(NAMES[1:]), "state lacks the joints shoulder_pan_joint of ur5e; it has"),
    "twice": (
        {"joints": {"extra": "elbow_joint"}},
        [*NAMES, "extra"],
        "has the joint 'elbow_joint' of ur5e twice: 'elbow_joint' and 'extra'; allowed: once",
    ),
    "option": (
        {"joints": {"extra": "elbow"}},
        [*NAMES, "extra"],
        r"no joint of ur5e in layout.joints 'elbow'. Did you mean 'elbow_joint'",
    ),
    "length": ({"joints": ["elbow_joint"]}, list(NAMES), "has 1 joints, and the state 7 numbers"),
    "hinge": (
        {"grippers": {"elbow_joint": "opening", "gripper": "opening"}},
        list(NAMES),
        "'elbow_joint' is a gripper in layout.grippers, and the hinge",
    ),
    "convention": (
        {"grippers": {"other": "opening"}, "joints": {"other": None}},
        [*NAMES, "other"],
        r"'gripper' is the gripper of the robot; set its convention, layout.grippers={gripper: C",
    ),
    "no state": ({}, [], "need joint positions, and the data have no state. Name it, format.state"),
    "no name": ({"grippers": {"grip": "opening"}}, list(NAMES), "There is no joint 'grip'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_other_joints_than_the_robots_are_refused_in_one_line(urdf: str, name: str) -> None:
    options, names, message = ERRORS[name]
    with pytest.raises(ValueError, match=message) as caught:
        layout(urdf, **options).meaning(names, list(NAMES))
    assert "\n" not in str(caught.value)


def test_options_that_contradict_the_robot_are_refused(urdf: str) -> None:
    with pytest.raises(ValueError, match="layout.arms is .*the arms are those of ur5e: arm. Omit"):
        layout(urdf, arms={"arm": ["elbow_joint"]})
    with pytest.raises(ValueError, match=r"layout.joints needs the joints of a robot; .*menagerie"):
        NamedLayout({}, embodiment="panda", joints={"a": "b"})
    with pytest.raises(ValueError, match=r"There is no robot model .*missing.urdf"):
        layout("missing.urdf")
    assert NamedLayout({}, angle_unit="rad", embodiment="panda").meaning(["a"], ["a"])


def test_an_order_that_fits_the_limits_is_named(urdf: str) -> None:
    """The elbow of a UR5e turns half as far as its other joints."""
    elbow = NAMES.index("elbow_joint")
    positions = values()
    positions[:, 3] = 4.0
    swapped = list(range(7))
    swapped[3], swapped[elbow] = elbow, 3
    numbered = [f"qpos_{place}" for place in range(7)]
    grip = {"qpos_6": "opening"}
    options = {"grippers": grip, "angle_unit": "rad", "joints": list(NAMES)}
    meaning = layout(urdf, **options).meaning(numbered, numbered)
    recorded = positions[:, swapped]
    with pytest.raises(ForeignDataError, match="All are within the limits in this nea") as caught:
        joint_arrays(meaning, ("state", recorded), ("action", recorded))
    order = re.findall(r"'layout.joints=\[(.*)\]'", str(caught.value))[0].split(",")
    assert sorted(order) == sorted(NAMES)
    (elbow_place,) = [place for place in range(7) if order[place] == "elbow_joint"]
    assert abs(elbow_place - elbow) == 1, "it is exchanged with a neighbour"
    assert sum(one != other for one, other in zip(order, NAMES, strict=True)) == 2
    meaning = layout(urdf, **{**options, "joints": order}).meaning(numbered, numbered)
    joint_arrays(meaning, ("state", recorded), ("action", recorded))


@pytest.mark.parametrize(
    "case",
    [
        ("observation.ee_pos", 0.0, "differ by 0.0 mm."),
        ("observation.tcp_pose", 0.004, "differ by 4.0 mm."),
        ("cartesian_position", 0.02, "differ by 20.0 mm; allowed: 5 mm. Is the gripper frame (t"),
        ("action.ee_pose", 0.02, ""),
        ("gripper_position", 0.02, ""),
    ],
)
def test_recorded_gripper_poses_are_compared_at_import(
    urdf: str,
    case: tuple[str, float, str],
    tmp_path: Path,
    imported: Import,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, offset_m, told = case
    positions = values(sum(LENGTHS)).astype(np.float32)
    joints = positions[:, :6].astype(np.float64)
    poses = load_embodiment(urdf).forward_kinematics(joints)["arm"][:, :3, 3]
    poses[:, 2] += offset_m
    recorded = poses if name.endswith("pos") else np.concatenate([poses, 0 * poses], axis=1)
    series = {"state": positions, "action": positions, name: recorded.astype(np.float32)}
    vectors = ("state", "action")
    joints = {f"{what}_{place}": NAMES[place] for what in vectors for place in range(7)}
    grip = dict.fromkeys([f"{what}_6" for what in vectors], "opening")
    reader = DiffusionPolicyReader(
        layout(urdf, grippers=grip, angle_unit="rad", joints=joints), control_hz=10
    )
    path = replay_buffer(tmp_path / "set.zarr", series)
    with caplog.at_level("INFO"):
        store, outcome = imported(reader, path)
    assert (len(store), outcome.refused) == (3, {})
    lines = caplog.messages
    sentence = f"The kinematics of ur5e and the recorded {name.replace('.', '/')} {told}"
    assert any(sentence in line for line in lines) == bool(told)
    assert any("the recorded" in line for line in lines) == bool(told)


@pytest.mark.parametrize("unit", ["rad", "deg"])
def test_positions_beyond_the_limits_are_another_unit_or_order(urdf: str, unit: str) -> None:
    positions = values()
    positions[2, 2] = 3.6
    recorded = foreign(positions)
    if unit == "rad":
        recorded = positions[:, list(ORDER)] * np.where(np.array(ORDER) == 6, 100, 1)
    meaning: VectorSpec = layout(urdf, angle_unit=unit).meaning(SHUFFLED, SHUFFLED)
    with pytest.raises(
        ForeignDataError,
        match=r"state at frame 2: the joint 'elbow_joint' of ur5e is at 3.6 rad; its limits are "
        r"-3.142 to 3.142 rad. Is the unit \(layout.angle_unit\) or the order",
    ):
        joint_arrays(meaning, ("state", recorded), ("action", recorded))
