"""Kinematics, cameras, gripper and model of the KUKA agree with MuJoCo and published figures."""

import mujoco
import numpy as np
import pytest
from dm_control import mjcf

from stringline import IIWA14, IIWA14_BIMANUAL, Camera, Embodiment, InverseKinematics, Vector, pose
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.embodiments.iiwa14 import FACING, FINGERS, GRIPPER_Z
from stringline.datasets.embodiments.iiwa14_mjcf import bare_arms_mjcf
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError

BOTH = pytest.mark.parametrize(
    "embodiment", [IIWA14, IIWA14_BIMANUAL], ids=lambda embodiment: embodiment.name
)


@pytest.fixture(scope="module")
def worlds() -> dict[str, mjcf.Physics]:
    return {
        embodiment.name: mjcf.Physics.from_mjcf_model(bare_arms_mjcf(embodiment))
        for embodiment in (IIWA14, IIWA14_BIMANUAL)
    }


@pytest.fixture(scope="module")
def kinematics() -> InverseKinematics:
    return InverseKinematics(IIWA14)


def put(physics: mjcf.Physics, embodiment: Embodiment, q: Vector) -> mujoco.MjData:
    """Moves the model's joints to a joint vector and returns its data."""
    data = physics.data.ptr
    for joint, value in zip(embodiment.joints, q, strict=True):
        if joint.kind == "revolute":
            data.joint(joint.name).qpos[0] = value
        else:
            for side in ("left", "right"):
                data.joint(f"{joint.arm}/{side}_finger").qpos[0] = FINGERS.travel(value)
    mujoco.mj_forward(physics.model.ptr, data)
    return data


def random_joints(embodiment: Embodiment, count: int) -> Vector:
    return np.random.default_rng(0).uniform(
        embodiment.lower, embodiment.upper, (count, len(embodiment.joints))
    )


@BOTH
def test_forward_kinematics_and_cameras_equal_those_of_mujoco(
    worlds: dict[str, mjcf.Physics], embodiment: Embodiment
) -> None:
    for q in random_joints(embodiment, 20):
        data = put(worlds[embodiment.name], embodiment, q)
        for arm, T_base_gripper in embodiment.forward_kinematics(q).items():
            site = data.site(f"{arm}/gripper")
            np.testing.assert_allclose(T_base_gripper[:3, 3], site.xpos, atol=1e-9)
            np.testing.assert_allclose(T_base_gripper[:3, :3], site.xmat.reshape(3, 3), atol=1e-9)
        for name, T_base_camera in embodiment.camera_poses(q).items():
            parent = next(mount.parent for mount in embodiment.cameras if mount.name == name)
            camera = data.camera(name if parent == "world" else f"{parent}/{name}")
            np.testing.assert_allclose(T_base_camera[:3, 3], camera.xpos, atol=1e-9)
            np.testing.assert_allclose(
                T_base_camera[:3, :3] * (1, -1, -1), camera.xmat.reshape(3, 3), atol=1e-9
            )


def test_heights_and_axes_of_the_upright_arm_are_the_published_ones() -> None:
    chain, T = IIWA14.chains[0], pose()
    heights, axes = [], []
    for link in chain.links:
        T = T @ link.T_parent_link
        heights.append(T[2, 3])
        axes.append(tuple(np.round(T[:3, :3] @ link.axis, 9) + 0.0))
    np.testing.assert_allclose(
        heights, (0.1575, 0.36, 0.5645, 0.78, 0.9645, 1.18, 1.261), atol=1e-12
    )
    up, ahead, back = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0)
    assert axes == [up, ahead, up, back, up, ahead, up]
    upright = IIWA14.forward_kinematics(np.zeros(8))["arm"]
    np.testing.assert_allclose(upright[:3, 3], (0, 0, 1.261 + GRIPPER_Z), atol=1e-12)
    bent = np.array(
        [0, 0, 0, -np.pi / 2, 0, np.pi / 2, 0, 0]
    )  # A published pose: flange at (0.40, 0, 0.654), pointing down.
    T_base_gripper = IIWA14.forward_kinematics(bent)["arm"]
    np.testing.assert_allclose(
        T_base_gripper[:3, 3], (0.4, 0, 0.654 - (GRIPPER_Z - 0.045)), atol=1e-9
    )
    np.testing.assert_allclose(T_base_gripper[:3, 0], (0, 0, -1), atol=1e-9)


def test_limits_are_the_published_ones(worlds: dict[str, mjcf.Physics]) -> None:
    revolute = IIWA14.revolute_joints["arm"]
    np.testing.assert_allclose(
        np.degrees(IIWA14.upper[revolute]), (170, 120, 170, 120, 170, 120, 175)
    )
    np.testing.assert_array_equal(IIWA14.lower[revolute], -IIWA14.upper[revolute])
    np.testing.assert_allclose(
        np.degrees(IIWA14.velocity_limits[revolute]), (85, 85, 100, 75, 130, 135, 135)
    )
    model = worlds["iiwa14"].model.ptr
    for number, torque in enumerate((320, 320, 176, 176, 110, 40, 40), 1):
        np.testing.assert_allclose(model.actuator(f"arm/a{number}").forcerange, (-torque, torque))
        np.testing.assert_allclose(
            model.joint(f"arm/a{number}").range, IIWA14.upper[number - 1] * np.array([-1, 1])
        )
    arm = sum(
        model.body(name).mass[0]
        for name in ("arm/base_link", *(f"arm/link_{n}" for n in range(1, 8)))
    )
    assert arm == pytest.approx(5 + 5.76 + 6.35 + 3.5 + 3.5 + 3.5 + 1.8 + 1.2)


def test_both_arms_of_the_cell_equal_the_single_arm() -> None:
    q = random_joints(IIWA14, 1)[0]
    alone = IIWA14.forward_kinematics(q)["arm"]
    found = IIWA14_BIMANUAL.forward_kinematics(np.tile(q, 2))
    for chain in IIWA14_BIMANUAL.chains:
        np.testing.assert_allclose(found[chain.arm], chain.T_base_root @ alone, atol=1e-12)
    assert IIWA14_BIMANUAL.arms == FACING
    start = IIWA14_BIMANUAL.forward_kinematics(IIWA14_BIMANUAL.home)
    np.testing.assert_allclose(start["left"][:3, 3] * (-1, 1, 1), start["right"][:3, 3], atol=1e-12)


def test_inverse_kinematics_undoes_forward_kinematics(kinematics: InverseKinematics) -> None:
    rng = np.random.default_rng(1)
    revolute = np.array([joint.kind == "revolute" for joint in IIWA14.joints])
    for _ in range(10):
        target = IIWA14.forward_kinematics(IIWA14.home + rng.uniform(-0.25, 0.25, 8) * revolute)
        found = kinematics.solve(target, IIWA14.home, tolerance=1e-5)
        np.testing.assert_allclose(
            IIWA14.forward_kinematics(found)["arm"], target["arm"], atol=3e-5
        )
        assert (found >= IIWA14.lower).all()
        assert (found <= IIWA14.upper).all()
    with pytest.raises(OutOfReachError, match=r"Out of reach: arm at \[1\.5, 0\.0, 0\.5\] m"):
        kinematics.solve({"arm": pose((1.5, 0.0, 0.5))}, IIWA14.home)


def test_a_step_is_no_faster_than_each_joint(kinematics: InverseKinematics) -> None:
    target = IIWA14.forward_kinematics(IIWA14.home)["arm"] @ pose((0.2, 0.2, -0.2))
    share = np.abs(kinematics.step({"arm": target}, IIWA14.home, 0.02) - IIWA14.home) / (
        0.02 * IIWA14.velocity_limits
    )
    assert 0.9 < share.max() <= 1 + 1e-9


@pytest.mark.parametrize("opening", [0.0, 0.3, 1.0])
def test_openings_are_linear_in_the_gap_between_the_pads(
    worlds: dict[str, mjcf.Physics], opening: float
) -> None:
    assert FINGERS.opening(FINGERS.travel(opening)) == pytest.approx(opening)
    physics, q = worlds["iiwa14"], IIWA14.home.copy()
    q[7] = opening
    data, model = put(physics, IIWA14, q), physics.model.ptr
    pads = [model.geom(f"arm/{side}_pad").id for side in ("left", "right")]
    gap = mujoco.mj_geomDistance(model, data, *pads, 1.0, None) if opening else 0.0
    assert gap == pytest.approx(float(FINGERS.gap(opening)), abs=1e-6)
    assert gap == pytest.approx(0.11 * opening, abs=1e-6)
    assert np.linalg.norm(data.geom_xpos[pads].mean(axis=0) - data.site("arm/gripper").xpos) < 1e-9
    capsules = [capsule for capsule in IIWA14.capsules(q) if capsule.radius < 0.02]
    for pad in pads:
        assert (
            min(distance(data.geom_xpos[pad], c.start, c.end) - c.radius for c in capsules) < -0.004
        )


def distance(point: Vector, start: Vector, end: Vector) -> float:
    share = np.clip((point - start) @ (end - start) / ((end - start) @ (end - start)), 0, 1)
    return float(np.linalg.norm(point - start - share * (end - start)))


def test_the_arm_holds_still_without_sagging_and_keeps_its_limits(
    worlds: dict[str, mjcf.Physics],
) -> None:
    physics = worlds["iiwa14"]
    data = put(physics, IIWA14, IIWA14.home)
    data.qvel[:] = 0
    for joint, value in zip(IIWA14.joints, IIWA14.home, strict=True):
        data.actuator(joint.name).ctrl[0] = (
            value if joint.kind == "revolute" else FINGERS.travel(value)
        )
    before = data.site("arm/gripper").xpos.copy()
    mujoco.mj_step(physics.model.ptr, data, nstep=500)
    assert np.linalg.norm(data.site("arm/gripper").xpos - before) < 5e-4
    data.actuator("arm/a6").ctrl[0] = 3.0  # Beyond its limit of 2.09 rad.
    mujoco.mj_step(physics.model.ptr, data, nstep=1000)
    assert data.joint("arm/a6").qpos[0] < IIWA14.upper[5] + 0.01


@BOTH
def test_the_contract_describes_the_joints(embodiment: Embodiment) -> None:
    contract = embodiment.contract([Camera(mount.name, 8, 8) for mount in embodiment.cameras], 50.0)
    assert contract.joints == tuple(dimension.name for dimension in contract.action)
    assert len(contract.joints) == 8 * len(embodiment.arms)
    assert "base plate" in contract.base_frame
    assert EMBODIMENTS[contract.embodiment] is embodiment
    with pytest.raises(ValueError, match="There is no camera 'rist'. Did you mean"):
        embodiment.contract([Camera("rist", 8, 8)], 50.0)
