"""The KUKA cell with an arm from a file: model and embodiment agree, experts use its gripper."""

import os
from dataclasses import astuple
from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml
from tests.datasets.embodiments.robot_files import write_ur5e
from tests.sim.robots.arm_files import arm_mjcf, write_arm

from stringline import IIWA14, make_expert, record_episode
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.embodiments.embodiment_source import load_embodiment
from stringline.datasets.embodiments.iiwa14 import FINGERS
from stringline.sim.environment.environment import make_environment
from stringline.sim.robots.arm_cell import arm_cell
from stringline.sim.robots.workcells import KUKA_CELL, PadSizes
from stringline.sim.tasks.task_registry import task_class

ROOT = os.environ.get("MENAGERIE_ROOT")


@pytest.mark.parametrize("fingers", [False, True])
def test_model_and_embodiment_agree(tmp_path: Path, fingers: bool) -> None:
    source = str(write_arm(tmp_path, fingers=fingers))
    cell = arm_cell(source)
    body = cell.embodiment
    assert body.name == ("bench" if fingers else "bench_with_gripper")
    assert body.joints == load_embodiment(source).joints
    assert cell.fingers.gap(1.0) == pytest.approx(0.08 if fingers else FINGERS.gap(1.0))
    built = cell.robot()
    root = built.mjcf_model
    model = mujoco.MjModel.from_xml_string(root.to_xml_string(), root.get_assets())
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = rng.uniform(np.maximum(body.lower, -3), np.minimum(body.upper, 3))
        for joint, value in zip(body.joints[:-1], q, strict=False):
            data.joint(f"arm/{joint.name}").qpos = value
        for side in ("left", "right"):
            data.joint(f"arm/{side}_finger").qpos = cell.fingers.travel(q[-1])
        mujoco.mj_kinematics(model, data)
        mujoco.mj_camlight(model, data)
        pads = [data.geom(f"arm/{side}_pad").xpos for side in ("left", "right")]
        T_base_gripper = body.forward_kinematics(q)["arm"]
        assert np.mean(pads, axis=0) == pytest.approx(T_base_gripper[:3, 3], abs=1e-6)
        apart = pads[0] - pads[1]
        assert abs(apart @ T_base_gripper[:3, 1]) == pytest.approx(np.linalg.norm(apart))
        for name, T_base_camera in body.camera_poses(q).items():
            full = name if name == "overhead" else f"arm/{name}"
            assert data.camera(full).xpos == pytest.approx(T_base_camera[:3, 3], abs=1e-6)


def test_home_sizes_and_collisions_are_those_of_the_cell(tmp_path: Path) -> None:
    cell = arm_cell(str(write_arm(tmp_path, fingers=True)))
    at_home = cell.embodiment.forward_kinematics(cell.embodiment.home)["arm"]
    assert at_home == pytest.approx(IIWA14.forward_kinematics(IIWA14.home)["arm"], abs=2e-4)
    pads = PadSizes(half_width=0.01, tip=0.02, free=0.06)
    assert astuple(cell.pads) == pytest.approx(astuple(pads))
    model = mujoco.MjModel.from_xml_string(cell.model().to_xml_string())
    assert (model.body_gravcomp[model.body_mass > 0] == 1).all()
    assert model.nkey == model.nlight == 0
    assert model.nu == len(cell.embodiment.joints)
    assert arm_cell("iiwa14") is KUKA_CELL


@pytest.mark.slow
@pytest.mark.parametrize("task", ["kuka_pick", "kuka_place"])
@pytest.mark.parametrize("fingers", [False, True])
def test_the_expert_does_the_task(tmp_path: Path, task: str, fingers: bool) -> None:
    source = str(write_arm(tmp_path, fingers=fingers))
    world = make_environment(task, cameras=(), time_limit_s=20.0, embodiment=source)
    contract = world.contract
    robot = embodiment_of(contract)
    assert robot is not None
    recording = record_episode(world, make_expert(task), 1)
    world.close()
    assert recording.success, recording.error
    q = recording.arrays["joints/position"]
    assert recording.arrays["T_base_gripper/arm"] == pytest.approx(
        robot.forward_kinematics(q.astype(np.float64))["arm"], abs=1e-5
    )


SLIDE = '<body name="lift"><joint name="lift" type="slide"/><geom size="0.01"/></body>'


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gripper": None}, r"bench has no gripper; .*arms.arm.gripper: \{name: gripper\}"),
        (
            {"gripper": {"joint": "wrist_3_joint", "closed": 0.0, "open": 1.0}},
            "joint 'wrist_3_joint', is of another kind; allowed in simulation: a gripper of two",
        ),
        (
            {"model": arm_mjcf(left_out="elbow_joint")},
            "has 0 actuators of the joint 'elbow_joint'; allowed in simulation: one position",
        ),
        (
            {"model": arm_mjcf().replace("forcerange", "user")},
            r"'shoulder_pan_joint' has no torque limit.*\{shoulder_pan_joint: \{effort: NM\}\}",
        ),
        ({"model": arm_mjcf(extra=SLIDE)}, "has further joints, lift; allowed in simulation"),
        (
            {"pose": {"position_m": [-1, 0, 0]}},
            r"reach \[.*\] m, pointing down, from .*home",
        ),
        (
            {"model": arm_mjcf(extra='<frame pos="0 0 1"><site name="top"/></frame>')},
            "arm.xml has <frame> elements, which dm_control cannot read; allowed",
        ),
    ],
)
def test_arms_that_the_cell_cannot_have(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        arm_cell(str(write_arm(tmp_path, **settings)))  # type: ignore[arg-type]


def test_empty_frames_of_a_file_are_left_out(tmp_path: Path) -> None:
    cell = arm_cell(str(write_arm(tmp_path, model=arm_mjcf(extra='<frame pos="0 0 1"/>'))))
    assert cell.model().find("body", "arm/base_link") is not None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("aloha", "'aloha', which has two arms; allowed: one arm"),
        ("ur5e", "Did you mean 'menagerie:ur5e'"),
        ("ur5e.urdf", "a URDF, which has no drives; allowed in simulation: MJCF"),
        ("two.yaml", "has the arms left, right; allowed in simulation: one arm"),
        ("menagerie:ur10e", r'pip install "stringline\[menagerie\]"'),
    ],
)
def test_sources_that_the_cell_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    write_ur5e(tmp_path / "ur5e.urdf", fingers=True)
    plain = yaml.safe_load(write_arm(tmp_path).read_text())
    plain["arms"] = {side: plain["arms"]["arm"] for side in ("left", "right")}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(plain))
    with pytest.raises(ValueError, match=message):
        arm_cell(source)


def test_tasks_of_two_arms_keep_theirs() -> None:
    for task in ("hand_over_banana", "kuka_bimanual_pick"):
        with pytest.raises(ValueError, match=f"{task} has the arms of its workcell"):
            task_class(task, "menagerie:ur5e")


@pytest.mark.slow
@pytest.mark.skipif(ROOT is None, reason="no folder with MuJoCo Menagerie")
@pytest.mark.parametrize("name", ["ur5e", "panda"])
def test_the_expert_picks_with_arms_of_menagerie(name: str) -> None:
    world = make_environment(
        "kuka_pick", cameras=(), time_limit_s=12.0, embodiment=f"menagerie:{name}"
    )
    expert = make_expert("kuka_pick")
    done = [record_episode(world, expert, seed).success for seed in range(4)]
    world.close()
    assert sum(done) >= 3
