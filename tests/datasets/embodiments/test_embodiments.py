"""Kinematics, cameras, grippers and models of the embodiments agree with MuJoCo."""

import subprocess
import sys

import mujoco
import numpy as np
import pytest
from dm_control import mjcf

from stringline import ALOHA, Camera, InverseKinematics, Vector, pose, rotation_about
from stringline.datasets.embodiments.aloha import (
    ARMS,
    FINGERS,
    FOLLOWER,
    GRIPPER_SERVOS,
    GripperServo,
    finger_of_opening,
    opening_of_finger,
)
from stringline.datasets.embodiments.aloha_mjcf import bare_arms_mjcf
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError, kinematic_xml
from stringline.datasets.embodiments.transforms import inverse, quaternion


@pytest.fixture(scope="module")
def physics() -> mjcf.Physics:
    return mjcf.Physics.from_mjcf_model(bare_arms_mjcf())


@pytest.fixture(scope="module")
def kinematics() -> InverseKinematics:
    return InverseKinematics(ALOHA)


def put(physics: mjcf.Physics, q: Vector) -> mujoco.MjData:
    """Moves the model's joints to a joint vector and returns its data."""
    data = physics.data.ptr
    for joint, value in zip(ALOHA.joints, q, strict=True):
        if joint.kind == "revolute":
            data.joint(joint.name).qpos[0] = value
        else:
            for side in ("left", "right"):
                data.joint(f"{joint.arm}/{side}_finger").qpos[0] = finger_of_opening(value)
    mujoco.mj_forward(physics.model.ptr, data)
    return data


def random_joints(count: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).uniform(ALOHA.lower, ALOHA.upper, (count, len(ALOHA.joints)))


def test_forward_kinematics_and_cameras_equal_those_of_mujoco(physics: mjcf.Physics) -> None:
    for q in random_joints(50):
        data = put(physics, q)
        for arm, T_base_gripper in ALOHA.forward_kinematics(q).items():
            site = data.site(f"{arm}/gripper")
            np.testing.assert_allclose(T_base_gripper[:3, 3], site.xpos, atol=1e-9)
            np.testing.assert_allclose(T_base_gripper[:3, :3], site.xmat.reshape(3, 3), atol=1e-9)
        for name, T_base_camera in ALOHA.camera_poses(q).items():
            camera = data.camera(
                f"{name.removeprefix('wrist_')}/{name}" if name.startswith("wrist") else name
            )
            np.testing.assert_allclose(T_base_camera[:3, 3], camera.xpos, atol=1e-9)
            np.testing.assert_allclose(
                T_base_camera[:3, :3] * (1, -1, -1), camera.xmat.reshape(3, 3), atol=1e-9
            )


def test_forward_kinematics_equals_that_of_the_kinematic_model() -> None:
    model = mujoco.MjModel.from_xml_string(kinematic_xml(ALOHA))
    data = mujoco.MjData(model)
    for q in random_joints(5):
        data.qpos = q[[joint.kind == "revolute" for joint in ALOHA.joints]]
        mujoco.mj_forward(model, data)
        for arm, T_base_gripper in ALOHA.forward_kinematics(q).items():
            np.testing.assert_allclose(
                T_base_gripper[:3, 3], data.site(f"{arm}/gripper").xpos, atol=1e-9
            )


def test_forward_kinematics_of_a_batch_is_that_of_its_members() -> None:
    q = random_joints(6).reshape(2, 3, -1)
    batch = ALOHA.forward_kinematics(q)
    for arm in ARMS:
        assert batch[arm].shape == (2, 3, 4, 4)
        np.testing.assert_array_equal(batch[arm][1, 2], ALOHA.forward_kinematics(q[1, 2])[arm])


def test_the_home_pose_is_the_published_one() -> None:
    T_base_gripper = ALOHA.forward_kinematics(ALOHA.home)
    np.testing.assert_allclose(T_base_gripper["left"][:3, 3], (-0.1875, 0.0, 0.2953), atol=1e-4)
    np.testing.assert_allclose(T_base_gripper["right"][:3, 3], (0.1875, 0.0, 0.2953), atol=1e-4)


def test_joint_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"aloha has 14 joints .* got shape \(7,\)"):
        ALOHA.forward_kinematics(np.zeros(7))


def test_inverse_kinematics_undoes_forward_kinematics(kinematics: InverseKinematics) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        q = ALOHA.home + rng.uniform(-0.4, 0.4, len(ALOHA.joints)) * [
            joint.kind == "revolute" for joint in ALOHA.joints
        ]
        targets = ALOHA.forward_kinematics(q)
        found = kinematics.solve(targets, ALOHA.home, tolerance=1e-5)
        for arm, T_base_gripper in ALOHA.forward_kinematics(found).items():
            np.testing.assert_allclose(T_base_gripper, targets[arm], atol=3e-5)
        assert (found >= ALOHA.lower).all()
        assert (found <= ALOHA.upper).all()


def test_an_arm_without_a_target_stays(kinematics: InverseKinematics) -> None:
    target = ALOHA.forward_kinematics(ALOHA.home)["left"] @ pose((0.03, 0.0, 0.0))
    found = kinematics.solve({"left": target}, ALOHA.home)
    np.testing.assert_allclose(found[7:], ALOHA.home[7:], atol=1e-6)
    assert np.abs(found[:7] - ALOHA.home[:7]).max() > 0.01


def test_a_step_is_no_faster_than_the_joints(kinematics: InverseKinematics) -> None:
    target = ALOHA.forward_kinematics(ALOHA.home)["left"] @ pose((0.2, 0.1, -0.1))
    moved = kinematics.step({"left": target}, ALOHA.home, 0.02) - ALOHA.home
    assert np.abs(moved).max() <= np.pi * 0.02 + 1e-9
    assert np.abs(moved).max() > 0.9 * np.pi * 0.02


def test_targets_out_of_reach_raise_an_error(kinematics: InverseKinematics) -> None:
    with pytest.raises(OutOfReachError, match=r"Out of reach: right at \[2\.0, 0\.0, 0\.5\] m"):
        kinematics.solve({"right": pose((2.0, 0.0, 0.5))}, ALOHA.home)


def test_invalid_targets_are_refused(kinematics: InverseKinematics) -> None:
    with pytest.raises(ValueError, match="There is no arm 'lefft'. Did you mean 'left'"):
        kinematics.solve({"lefft": pose()}, ALOHA.home)
    with pytest.raises(ValueError, match="finite 4x4 matrix"):
        kinematics.solve({"left": np.full((4, 4), np.nan)}, ALOHA.home)


def test_finger_travel_and_opening_are_inverse_and_linear_in_the_gap() -> None:
    opening = np.linspace(0, 1, 11)
    np.testing.assert_allclose(opening_of_finger(finger_of_opening(opening)), opening, atol=1e-12)
    np.testing.assert_allclose(
        FINGERS.gap(opening), 2 * finger_of_opening(opening) - 0.0156, atol=1e-12
    )
    assert FINGERS.gap(1.0) == pytest.approx(0.0584)


@pytest.mark.parametrize("opening", [0.0, 0.3, 1.0])
def test_the_gap_between_the_models_pads_is_the_stated_one(
    physics: mjcf.Physics, opening: float
) -> None:
    q = ALOHA.home.copy()
    q[[6, 13]] = opening
    data, model = put(physics, q), physics.model.ptr
    for arm in ARMS:
        pads = [model.geom(f"{arm}/{side}_pad").id for side in ("left", "right")]
        gap = mujoco.mj_geomDistance(model, data, *pads, 1.0, None) if opening else 0.0
        assert gap == pytest.approx(float(FINGERS.gap(opening)), abs=1e-6)
        middle = data.geom_xpos[pads].mean(axis=0)
        assert np.linalg.norm(middle - data.site(f"{arm}/gripper").xpos) < 0.005


@pytest.mark.parametrize("servo", GRIPPER_SERVOS.values(), ids=GRIPPER_SERVOS)
def test_servo_angles_and_openings_are_inverse(servo: GripperServo) -> None:
    opening = np.linspace(0, 1, 11)
    angle = servo.angle(opening)
    np.testing.assert_allclose(servo.opening(angle), opening, atol=1e-9)
    assert (np.diff(angle) > 0).all()
    np.testing.assert_allclose(servo.opening([servo.closed, servo.opened]), [0, 1], atol=1e-12)


def test_the_follower_servo_has_the_finger_travel_of_the_model() -> None:
    travel = FOLLOWER.half_distance(FOLLOWER.opened) - FOLLOWER.half_distance(FOLLOWER.closed)
    assert travel == pytest.approx(float(finger_of_opening(1) - finger_of_opening(0)), abs=0.002)


def test_the_arms_hold_still_without_sagging(physics: mjcf.Physics) -> None:
    data = put(physics, ALOHA.home)
    for joint, value in zip(ALOHA.joints, ALOHA.home, strict=True):
        data.actuator(joint.name).ctrl[0] = (
            value if joint.kind == "revolute" else finger_of_opening(value)
        )
    before = data.site("left/gripper").xpos.copy()
    mujoco.mj_step(physics.model.ptr, data, nstep=500)
    assert np.linalg.norm(data.site("left/gripper").xpos - before) < 1e-3


def test_the_capsules_of_both_arms_are_congruent() -> None:
    q = np.tile(random_joints(1)[0, :7], 2)
    capsules = ALOHA.capsules(q)
    left, right = ([capsule for capsule in capsules if capsule.arm == arm] for arm in ARMS)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one.start * (-1, -1, 1), other.start, atol=1e-12)
        np.testing.assert_allclose(one.end * (-1, -1, 1), other.end, atol=1e-12)


def test_finger_capsules_enclose_the_pads(physics: mjcf.Physics) -> None:
    for opening in (0.0, 1.0):
        q = ALOHA.home.copy()
        q[[6, 13]] = opening
        data, model = put(physics, q), physics.model.ptr
        pad = data.geom_xpos[model.geom("left/left_pad").id]
        assert min(distance(pad, c.start, c.end) - c.radius for c in ALOHA.capsules(q)) < -0.005


def distance(point: Vector, start: Vector, end: Vector) -> float:
    share = np.clip((point - start) @ (end - start) / ((end - start) @ (end - start)), 0, 1)
    return float(np.linalg.norm(point - start - share * (end - start)))


def test_the_contract_describes_the_joints() -> None:
    contract = ALOHA.contract([Camera("overhead", 8, 8)], 50.0)
    assert contract.joints == tuple(dimension.name for dimension in contract.action)
    assert [dimension.unit for dimension in contract.action].count("opening") == 2
    with pytest.raises(ValueError, match="There is no camera 'overhad'. Did you mean 'overhead'"):
        ALOHA.contract([Camera("overhad", 8, 8)], 50.0)


def test_rotations_quaternions_and_inverses_agree_with_mujoco() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        axis = rng.standard_normal(3)
        rotation = rotation_about(axis / np.linalg.norm(axis), rng.uniform(-np.pi, np.pi))
        expected = np.zeros(4)
        mujoco.mju_mat2Quat(expected, rotation.ravel())
        np.testing.assert_allclose(quaternion(rotation), expected * np.sign(expected[0]), atol=1e-9)
        transform = pose(rng.standard_normal(3), rotation)
        np.testing.assert_allclose(inverse(transform) @ transform, np.eye(4), atol=1e-12)


def test_the_embodiment_imports_without_heavy_libraries() -> None:
    code = (
        "import sys, stringline.datasets.embodiments.aloha; print({'torch', 'mujoco', 'mink', "
        "'dm_control'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ".src"},
    )
    assert done.stdout.strip() == "set()"
