"""Robots from URDF and MJCF: kinematics equal MuJoCo's, capsules contain the shapes, errors."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.datasets.embodiments.kinematics import largest_error
from tests.datasets.embodiments.robot_files import (
    HOME,
    ODD_ARM,
    UR5E_JOINTS,
    robot,
    ur5e_urdf,
    write_box_mesh,
    write_ur5e,
)

from stringline import Contract, Embodiment, InverseKinematics, Vector, load_embodiment
from stringline.datasets.embodiments.capsule_fitting import fit_capsules, surface_of
from stringline.datasets.embodiments.embodiment_file import compile_embodiment
from stringline.datasets.embodiments.embodiment_record import embodiment_of, from_record, record_of
from stringline.datasets.embodiments.embodiment_source import load_parts


def test_the_kinematics_of_a_urdf_are_those_of_mujoco(tmp_path: Path) -> None:
    model, file = load_parts(str(write_ur5e(tmp_path / "ur5e.urdf", fingers=True)))
    arm = compile_embodiment(model, file)
    assert [joint.name for joint in arm.joints] == [*UR5E_JOINTS, "left_finger_joint"]
    assert [joint.kind for joint in arm.joints] == 6 * ["revolute"] + ["gripper"]
    assert [joint.velocity for joint in arm.joints[:6]] == 6 * [3.14]
    assert [joint.effort for joint in arm.joints[:6]] == [150, 150, 150, 28, 28, 28]
    part = file.arms["arm"]
    assert (part.base, part.tcp, part.forward, part.closes) == ("base_link", "tool0", "z", "y")
    assert part.gripper is not None
    assert (part.gripper.closed, part.gripper.open) == (0.0, 0.04)
    assert largest_error(model, file, arm) < 1e-9


def test_the_published_pose_of_a_ur5e_is_reached(tmp_path: Path) -> None:
    """At zero, tool0 is at (-a2 - a3, -d4 - d6, d1 - d5) in base_link of the URDF."""
    arm = load_embodiment(str(write_ur5e(tmp_path / "ur5e.urdf")))
    T = arm.forward_kinematics(np.zeros(6))["arm"]
    assert T[:3, 3] == pytest.approx([-0.8172, -0.2329, 0.0628], abs=1e-6)
    assert T[:3, 0] == pytest.approx([0, -1, 0], abs=1e-6), "x of a gripper points forwards"


def test_the_kinematics_of_an_unusual_mjcf_are_those_of_mujoco(tmp_path: Path) -> None:
    (tmp_path / "odd.xml").write_text(ODD_ARM)
    text = """
name: odd
model: odd.xml
base_frame: beside the foot
fixed: {lift: 0.25}
arms:
  arm:
    base: foot
    pose: {position_m: [1, 2, 3], rpy_deg: [90, 0, 45]}
    tcp: grasp
    tcp_offset: {position_m: [0.01, 0, 0.02], rpy_deg: [0, 90, 0]}
    forward: -z
    closes: x
    gripper: {joint: jaw, closed: -0.17, open: 1.0}
    home: {two: -0.5}
joints:
  three: {limits: [-1, 1], speed: 1.5, effort: 9}
"""
    (tmp_path / "odd.yaml").write_text(text)
    model, file = load_parts(str(tmp_path / "odd.yaml"))
    arm = compile_embodiment(model, file)
    assert largest_error(model, file, arm) < 1e-9
    assert [joint.name for joint in arm.joints] == ["one", "two", "three", "jaw"]
    three = arm.joints[2]
    assert (three.lower, three.upper, three.velocity, three.effort) == (-1, 1, 1.5, 9)
    assert arm.joints[0].effort == 7, "the limit of its actuator"
    assert arm.home == pytest.approx([0.3, -0.5, 0.5, 1.0]), "of the keyframe and of the file"
    assert arm.base_frame == "beside the foot"


def test_two_arms_of_one_model_and_one_model_for_two_arms(tmp_path: Path) -> None:
    both = robot(
        '<link name="torso"/>',
        *(ur5e_urdf(prefix=f"{side}_") for side in ("left", "right")),
        *(
            f'<joint name="{side}_mount" type="fixed"><parent link="torso"/><child link="'
            f'{side}_base_link"/><origin xyz="0 {place} 1" rpy="{place} 0 0"/></joint>'
            for side, place in (("left", 0.5), ("right", -0.5))
        ),
    )
    (tmp_path / "both.urdf").write_text(both)
    model, file = load_parts(str(tmp_path / "both.urdf"))
    arms = compile_embodiment(model, file)
    assert arms.arms == ("left", "right")
    assert arms.joints[6].name == "right_shoulder_pan_joint"
    assert largest_error(model, file, arms) < 1e-9
    assert {file.arms[side].base for side in arms.arms} == {"torso"}
    write_ur5e(tmp_path / "ur5e.urdf")
    one = {"base": "base_link", "tcp": "tool0", "gripper": {"name": "grip"}}
    roots = {side: {"position_m": [0, y, 0]} for side, y in (("left", 0.4), ("right", -0.4))}
    plain = {
        "name": "two_ur5e",
        "model": "ur5e.urdf",
        "arms": {side: {**one, "pose": root} for side, root in roots.items()},
    }
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(plain))
    model, file = load_parts(str(tmp_path / "two.yaml"))
    twins = compile_embodiment(model, file)
    assert twins.joints[0].name == "left/shoulder_pan_joint"
    assert twins.joints[13].name == "right/grip"
    assert largest_error(model, file, twins) < 1e-9


def test_a_record_has_the_same_kinematics_and_capsules(tmp_path: Path) -> None:
    arm = load_embodiment(str(write_ur5e(tmp_path / "ur5e.urdf", fingers=True)))
    again = from_record(arm.name, arm.base_frame, record_of(arm))
    q = np.random.default_rng(0).uniform(arm.lower, arm.upper, (20, 7))
    # A record is rounded to nine decimals, so absolute differences of some nanometres are left.
    poses = [robot.forward_kinematics(q)["arm"] for robot in (arm, again)]
    assert np.allclose(*poses, rtol=0, atol=5e-9)
    assert np.allclose(arm.capsule_axes(q), again.capsule_axes(q), rtol=0, atol=5e-9)
    assert again.joints == arm.joints
    assert record_of(again)["capsules"] == record_of(arm)["capsules"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.pop("home"), "'home'"),
        (lambda record: record["joints"].pop(), "are not 5 finite numbers"),
        (lambda record: record["chains"][0]["links"].pop(), "one link for each"),
        (lambda record: record["home"].__setitem__(0, "x"), "could not convert"),
        (lambda record: record["home"].__setitem__(0, float("nan")), "finite"),
        (lambda record: record["joints"][0].update(kind="slide"), "slide.*revolute and gripper"),
        (lambda record: record["capsules"][0].update(link=77), "link 77"),
        (lambda record: record.update(joints=[{}] * 2000), "2000 parts"),
    ],
)
def test_a_damaged_record_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    record = record_of(load_embodiment(str(write_ur5e(tmp_path / "ur5e.urdf"))))
    change(record)
    with pytest.raises(ValueError, match=f"The kinematics of 'x' are invalid: .*{message}"):
        from_record("x", "base", record)


def test_the_inverse_kinematics_find_joints(tmp_path: Path) -> None:
    arm = load_embodiment(str(write_ur5e(tmp_path / "ur5e.urdf")))
    goal = arm.forward_kinematics(np.array(HOME) + 0.1)["arm"]
    found = InverseKinematics(arm).solve({"arm": goal}, np.array(HOME))
    assert arm.forward_kinematics(found)["arm"] == pytest.approx(goal, abs=2e-4)


def test_capsules_contain_the_shapes_at_each_opening(tmp_path: Path) -> None:
    write_box_mesh(tmp_path / "meshes" / "cube.stl")
    path = write_ur5e(tmp_path / "ur5e.urdf", "meshes/cube.stl", fingers=True)
    model, file = load_parts(str(path))
    arm = compile_embodiment(model, file)
    assert not model.missing
    assert {mount.link for mount in arm.capsule_mounts} == {-1, *range(6)}
    moving = [mount for mount in arm.capsule_mounts if mount.per_opening.any()]
    assert [np.abs(mount.per_opening).max() for mount in moving] == pytest.approx([0.04, 0.04])
    random = np.random.default_rng(0)
    for opening in (0.0, 0.3, 1.0):
        q = random.uniform(arm.lower, arm.upper)
        q[6] = opening
        positions = dict(zip(UR5E_JOINTS, q[:6], strict=True))
        data = model.positions({**positions, "left_finger_joint": 0.04 * opening})
        for body in range(1, model.model.nbody):
            points = surface_of(model, body) @ data.xmat[body].reshape(3, 3).T + data.xpos[body]
            assert outside(arm, q, points) < 1e-3


def outside(arm: Embodiment, q: Vector, points: Vector) -> float:
    """Returns how far points (N, 3) stick out of all capsules, metres."""
    if not len(points):
        return 0.0
    distances = []
    for capsule in arm.capsules(q):
        along = capsule.end - capsule.start
        share = np.clip((points - capsule.start) @ along / max(float(along @ along), 1e-18), 0, 1)
        nearest = capsule.start + share[:, None] * along
        distances.append(np.linalg.norm(points - nearest, axis=1) - capsule.radius)
    return float(np.min(distances, axis=0).max())


def test_capsules_are_tight_around_capsules_and_bent_links() -> None:
    random = np.random.default_rng(0)
    ball = random.normal(size=(4000, 3))
    ball *= 0.05 / np.linalg.norm(ball, axis=1, keepdims=True)
    steps = np.linspace(0, 1, 40)[:, None, None]
    straight = (steps * np.array([0.3, 0, 0]) + ball).reshape(-1, 3)
    (found,) = fit_capsules(straight)
    assert found.radius == pytest.approx(0.05, rel=0.02)
    assert sorted([found.start[0], found.end[0]]) == pytest.approx([0, 0.3], abs=3e-3)
    legs = [steps * np.array(way) + ball[:200] for way in ((0.4, 0, 0), (0, 0.4, 0))]
    bent = np.concatenate([leg.reshape(-1, 3) for leg in legs])
    whole = np.linalg.norm(np.ptp(bent, axis=0))
    parts = fit_capsules(bent)
    assert 2 <= len(parts) <= 4
    assert sum(part.volume for part in parts) < 0.5 * np.pi * (whole / 3) ** 2 * whole


def test_missing_meshes_are_told_and_leave_the_kinematics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = load_embodiment(str(write_ur5e(tmp_path / "ur5e.urdf")))
    q = np.array(HOME)
    (tmp_path / "lfs.stl").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "shape.dae").write_text("<COLLADA/>")
    reasons = {
        "gone.stl": "does not exist",
        "package://arms/meshes/gone.stl": "does not exist",
        "lfs.stl": "is a pointer of Git LFS; run `git lfs pull`",
        "shape.dae": "is .dae; MuJoCo reads .stl, .obj, .msh",
    }
    for mesh, reason in reasons.items():
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            bare = load_embodiment(str(write_ur5e(tmp_path / "bare.urdf", mesh)))
        assert f"1 meshes are left out, such as {mesh}, which {reason}." in caplog.text
        assert bare.capsule_mounts == ()
        assert bare.forward_kinematics(q)["arm"] == pytest.approx(
            whole.forward_kinematics(q)["arm"]
        )


def test_meshes_of_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_box_mesh(tmp_path / "ws" / "arms" / "meshes" / "cube.stl")
    (tmp_path / "ws" / "arms" / "urdf").mkdir()
    mesh = "package://arms/meshes/cube.stl"
    inside = write_ur5e(tmp_path / "ws" / "arms" / "urdf" / "ur5e.urdf", mesh)
    assert load_embodiment(str(inside)).capsule_mounts
    elsewhere = write_ur5e(tmp_path / "ur5e.urdf", mesh)
    assert not load_embodiment(str(elsewhere)).capsule_mounts
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(tmp_path / "ws"))
    assert load_embodiment(str(elsewhere)).capsule_mounts


def test_a_file_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lab_arms"
    (package / "urdf").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('this code must not run')")
    write_ur5e(package / "urdf" / "ur5e.urdf")
    monkeypatch.syspath_prepend(tmp_path)
    assert len(load_embodiment("package:lab_arms/urdf/ur5e.urdf").joints) == 6
    with pytest.raises(ValueError, match="no file in the package lab_arms 'embodiment.yaml'.*ur5e"):
        load_embodiment("package:lab_arms")
    plain = {"name": "lab", "model": "urdf/ur5e.urdf", "arms": {"arm": {"tcp": "tool0"}}}
    (package / "embodiment.yaml").write_text(yaml.safe_dump(plain))
    assert load_embodiment("package:lab_arms").name == "lab"
    with pytest.raises(ValueError, match="no Python package 'lab_legs'"):
        load_embodiment("package:lab_legs/arm.urdf")


def broken(change: Callable[[str], str]) -> Callable[[Path], Path]:
    """Returns a function that writes a changed URDF."""

    def write(folder: Path) -> Path:
        path = folder / "arm.urdf"
        path.write_text(change(robot(ur5e_urdf())))
        return path

    return write


def text_file(name: str, text: str) -> Callable[[Path], Path]:
    """Returns a function that writes a file."""

    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


BAD_MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda folder: folder / "arm.urdf", r"There is no robot model .*arm.urdf"),
    "no xml": (text_file("arm.urdf", "hello"), r"is not a robot model: .*Allowed: URDF"),
    "sdf": (text_file("arm.urdf", "<sdf/>"), r"first element is <sdf>; allowed: <robot>"),
    "xacro": (
        text_file("a.urdf", '<robot xmlns:xacro="http://ros.org/xacro"><xacro:arm/></robot>'),
        r"is a template of xacro; allowed: URDF. Run `xacro a.urdf > arm.urdf`",
    ),
    "mjcf": (text_file("arm.xml", "<mujoco><worldbodx/></mujoco>"), "MuJoCo cannot compile"),
    "no arm": (text_file("arm.xml", "<mujoco/>"), "has no arm: no frame is moved by 3 revolute"),
    "twice": (
        broken(lambda text: text.replace('name="wrist_2_joint"', 'name="elbow_joint"')),
        "the joint 'elbow_joint' occurs 2 times; allowed: once",
    ),
    "parent": (
        broken(lambda text: text.replace('parent link="link_2"', 'parent link="link_9"')),
        r"joint 'elbow_joint': There is no parent link 'link_9'. Did you mean 'link_",
    ),
    "swapped": (
        broken(lambda text: text.replace('lower="-3.1416" upper="3.1416"', 'lower="3" upper="1"')),
        "the limits of the joint 'elbow_joint' are 3 to 1; allowed: lower below upper. Exchange",
    ),
    "word": (
        broken(lambda text: text.replace('lower="-3.1416"', 'lower="low"')),
        "lower of the joint 'elbow_joint' is 'low'; allowed: a number",
    ),
    "degrees": (
        broken(lambda text: text.replace('"-3.1416" upper="3.1416"', '"-180" upper="180"')),
        "The limits of the joint 'elbow_joint' are -180 to 180 rad; allowed: .*degrees",
    ),
    "continuous": (
        broken(
            lambda text: text.replace(
                'elbow_joint" type="revolute', 'elbow_joint" type="continuous'
            ).replace('lower="-3.1416" upper="3.1416" ', "")
        ),
        r"'elbow_joint' of arm.urdf turns without limits; allowed: limits.*stringline-data",
    ),
    "loop": (
        broken(lambda text: text.replace('parent link="base_link"', 'parent link="link_6"')),
        "the joints shoulder_pan_joint, wrist_3_joint, .* make a loop; allowed: a tree of links",
    ),
    "two parents": (
        broken(
            lambda text: text.replace(
                "</robot>",
                '<joint name="rod" type="fixed"><parent link="link_1"/><child link="link_4"/>'
                "</joint></robot>",
            )
        ),
        "'link_4' is the child of the joints 'wrist_1_joint' and 'rod'; allowed: one .*loops",
    ),
    "no limits": (
        broken(lambda text: text.replace('lower="-3.1416" upper="3.1416" ', "")),
        r"'elbow_joint' of arm.urdf turns without limits; allowed: limits.*stringline-data",
    ),
    "type": (
        broken(
            lambda text: text.replace('elbow_joint" type="revolute', 'elbow_joint" type="hinge')
        ),
        "joint 'elbow_joint': There is no type of joint 'hinge'. .*Allowed: continuous, fixed",
    ),
    "mimic of nothing": (
        broken(lambda text: text.replace("</joint>", '<mimic joint="elbo_joint"/></joint>', 1)),
        "no joint that moves, to mimic, 'elbo_joint'. Did you mean 'elbow_joint'",
    ),
    "mimic of the arm": (
        broken(
            lambda text: text.replace(
                '<joint name="wrist_1_joint" type="revolute">',
                '<joint name="wrist_1_joint" type="revolute"><mimic joint="elbow_joint"/>',
            )
        ),
        r"no frame is moved by 3 .* wrist_1_joint \(follows elbow_joint\)",
    ),
    "floating": (
        broken(
            lambda text: text.replace('elbow_joint" type="revolute', 'elbow_joint" type="floating')
        ),
        "free joint can only be used on top level .*'link_3'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    write, message = BAD_MODELS[name]
    with pytest.raises(ValueError, match=message) as caught:
        load_embodiment(str(write(tmp_path)))
    assert "\n" not in str(caught.value)


BASIC = {"name": "lab", "model": "ur5e.urdf", "arms": {"arm": {"tcp": "tool0"}}}
BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "tcp": ({"arms": {"arm": {"tcp": "tool_0"}}}, r"no gripper frame \(tcp\) 'tool_0'.*'tool0'"),
    "base": ({"arms": {"arm": {"tcp": "tool0", "base": "bas"}}}, "no base frame 'bas'.*base_link"),
    "no tcp": ({"arms": {"arm": {}}}, "arms.arm lacks tcp"),
    "no arms": ({"arms": {}}, "arms is empty"),
    "key": ({"jonts": {}}, "no setting of an embodiment 'jonts'. Did you mean 'joints'"),
    "joint": ({"joints": {"elbow": {"speed": 1}}}, "There is no joint 'elbow'. Did.*elbow_joint"),
    "fixed": ({"joints": {"flange": {}}}, "'flange' is a fixed joint, which does not m"),
    "limits": ({"joints": {"elbow_joint": {"limits": [1]}}}, r"limits are \[1\]; allowed: \[LOWER"),
    "order": ({"joints": {"elbow_joint": {"limits": [2, 1]}}}, "are 2 to 1 rad; allowed: lower"),
    "speed": ({"joints": {"elbow_joint": {"speed": 0}}}, "speed must be a number above 0"),
    "built in": ({"name": "aloha"}, "'aloha', which is a built-in robot"),
    "axis": ({"arms": {"arm": {"tcp": "tool0", "forward": "w"}}}, "no axis forward 'w'"),
    "axes": ({"arms": {"arm": {"tcp": "tool0", "closes": "-x"}}}, "allowed: different axes"),
    "home": ({"arms": {"arm": {"tcp": "tool0", "home": {"elbow": 1}}}}, "in the home.*elbow_joint"),
    "still": ({"arms": {"arm": {"tcp": "base_link"}}}, "no joint moves 'base_link' from 'world'"),
    "beside": ({"arms": {"arm": {"tcp": "link_1", "base": "link_4"}}}, "must be the base of"),
    "gripper": (
        {"arms": {"arm": {"tcp": "tool0", "gripper": {"closed": 1, "open": 1}}}},
        "closed=1 and open=1; they must differ",
    ),
    "capsule": ({"capsules": [{"link": 0, "radius": 1}]}, "a capsule is .*allowed: {link: NUMBER"),
    "link": (
        {"capsules": [{"link": 9, "start": [0, 0, 0], "end": [0, 0, 0], "radius": 0.1}]},
        r"is at link 9; allowed: 0 \(base\) to 6",
    ),
    "offset": (
        {"arms": {"arm": {"tcp": "tool0", "tcp_offset": {"position_m": [1, 2]}}}},
        r"position_m is \[1, 2\]; allowed: three numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    write_ur5e(tmp_path / "ur5e.urdf")
    change, message = BAD_FILES[name]
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump({**BASIC, **change}))
    with pytest.raises(ValueError, match=message) as caught:
        load_embodiment(str(tmp_path / "lab.yaml"))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_embodiments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no embodiment file .*stringline-data embodiment"):
        load_embodiment(str(tmp_path / "arm.yaml"))
    (tmp_path / "arm.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="contains list; allowed: a mapping"):
        load_embodiment(str(tmp_path / "arm.yaml"))
    (tmp_path / "arm.yaml").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        load_embodiment(str(tmp_path / "arm.yaml"))
    (tmp_path / "arm.yaml").write_text("arms: {arm: {tcp: tool0}}\n")
    with pytest.raises(ValueError, match="lacks name and model; "):
        load_embodiment(str(tmp_path / "arm.yaml"))
    with pytest.raises(ValueError, match="There is no embodiment 'iiwa41'. Did you mean 'iiwa14'"):
        load_embodiment("iiwa41")


def test_a_slide_or_a_follower_in_the_arm_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.xml").write_text(ODD_ARM)
    plain = {"name": "odd", "model": "odd.xml", "arms": {"arm": {"tcp": "grasp"}}}
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump(plain))
    with pytest.raises(ValueError, match=r"joint 'lift' .* slides; .*fixed: {lift"):
        load_embodiment(str(tmp_path / "odd.yaml"))
    write_ur5e(tmp_path / "arm.urdf", fingers=True)
    plain = {"name": "lab", "model": "arm.urdf", "arms": {"arm": {"tcp": "right_finger"}}}
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(plain))
    with pytest.raises(ValueError, match="'right_finger_joint' .* follows 'left_finger_joint'"):
        load_embodiment(str(tmp_path / "lab.yaml"))


ODD_FILE = {"arms": {"arm": {"tcp": "grasp", "base": "foot"}}, "fixed": {"lift": 0.1}}
BAD_MJCF: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "swapped": ('"-90 90"', '"90 -90"', {}, "'one' are 90 to -90; .* Exchange them"),
    "degrees": ('angle="degree"', 'angle="radian"', {}, "'one' are -90 to 90 rad; .*degrees"),
    "radians": ("", "", {}, r"at most; are the numbers of the file, up to 2.9, radians\? MJCF has"),
    "no limits": (' range="-90 90"', "", {}, "The joint 'one' of odd.xml turns without limits"),
    "ball": (
        'axis="1 0 0" pos="0 0 0.03" range="-120 60"',
        'type="ball"',
        {}, "'two' .* is a ball joint; .* Choose"),
    "no name": ('joint name="two"', "joint", {}, "body 'shoulder' between .* has no name; allowed"),
    "loop": (
        "<actuator>",
        '<equality><connect body1="mount" body2="foot" anchor="0 0 0"/></equality><actuator>',
        {},
        "an equality of 'mount' and 'foot' closes a loop over the joint '(one|two)' of the arm",
    ),
    "frame": ("", "", {"joints": {"mount": {}}}, "no joint 'mount'. .*'mount' is a frame, which"),
    "actuator": (
        "<position joint",
        '<position name="drive" joint',
        {"joints": {"drive": {}}},
        "no joint 'drive'. .*'drive' is an actuator, of the joint 'one'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MJCF)
def test_a_bad_mjcf_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    old, new, change, message = BAD_MJCF[name]
    text = ODD_ARM.replace(old, new, 1) if old else ODD_ARM
    text = text.replace('<keyframe><key name="home" qpos="0.2 0.3 -0.4 0.5 0"/></keyframe>', "")
    if name == "radians":
        for degrees in ("-90 90", "-120 60", "-170 170"):
            text = text.replace(f'"{degrees}"', '"-2.9 2.9"')
    (tmp_path / "odd.xml").write_text(text)
    plain = {"name": "odd", "model": "odd.xml", **ODD_FILE, **change}
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump(plain))
    with pytest.raises(ValueError, match=message) as caught:
        load_embodiment(str(tmp_path / "odd.yaml"))
    assert "\n" not in str(caught.value)


def test_several_frames_without_a_usual_name_are_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "arm.urdf"
    path.write_text(robot(ur5e_urdf()).replace("tool0", "cap"))
    with pytest.raises(ValueError, match="several frames can be that of the gripper: cap, link_6."):
        load_embodiment(str(path))


def test_contracts_carry_the_kinematics(tmp_path: Path) -> None:
    arm = load_embodiment(str(write_ur5e(tmp_path / "ur5e.urdf")))
    bare = arm.contract((), 10.0)
    assert embodiment_of(bare) is None
    contract = replace(bare, kinematics=record_of(arm))
    again = Contract.from_dict(contract.to_dict())
    assert again == contract
    found = embodiment_of(again)
    assert found is not None
    assert found.forward_kinematics(np.array(HOME))["arm"] == pytest.approx(
        arm.forward_kinematics(np.array(HOME))["arm"]
    )
    assert embodiment_of(again) is found, "it is built once"
    assert "kinematics" not in bare.to_dict()
    (reason,) = contract.incompatibilities(bare)
    assert "kinematics: those of 'ur5e' are required" in reason
    with pytest.raises(ValueError, match="kinematics must be a mapping"):
        Contract.from_dict({**bare.to_dict(), "kinematics": 3})
