"""Arms from files by commands alone: imports, and tasks of the simulation, and their trainings."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from tests.datasets.embodiments.robot_files import HOME, UR5E_JOINTS, write_ur5e
from tests.sim.conftest import Call
from tests.sim.robots.arm_files import write_arm

from stringline import EpisodeStore, load_embodiment, load_policy
from stringline.datasets import data
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.embodiments.transforms import looking_at
from stringline.sim import collect, evaluate, replay, train

SIZE = 32
STEPS = 40
HZ = 10
JOINTS = (*UR5E_JOINTS, "gripper")


def write_set(folder: Path) -> Path:
    """Writes two episodes with depth as a recorder of ACT does: a grasp, in 7 unnamed numbers."""
    folder.mkdir()
    for episode in range(2):
        random = np.random.default_rng(episode)
        start, end = HOME + random.uniform(-0.2, 0.2, (2, 6))
        share = np.clip(np.linspace(-0.3, 1.3, STEPS), 0, 1)[:, None]
        opening = np.where(np.arange(STEPS) < 30, 1.0, 0.2)[:, None]
        q = np.concatenate([start + share * (end - start), opening], axis=1).astype(np.float32)
        with h5py.File(folder / f"episode_{episode}.hdf5", "w") as file:
            file.attrs["sim"] = False
            file["action"] = file["observations/qpos"] = q
            shown = random.integers(0, 256, (STEPS, SIZE, SIZE, 3), dtype=np.uint8)
            file["observations/images/front"] = shown
            depth = random.integers(500, 1500, (STEPS, SIZE, SIZE)).astype(np.uint16)
            file["observations/images_depth/front"] = depth
    return folder


def write_calibration(path: Path, robot: str) -> Path:
    """Writes the calibration of the camera, which looks at the gripper at home."""
    place = load_embodiment(robot).forward_kinematics(np.array(HOME))["arm"][:3, 3]
    camera = {
        "parent": "world",
        "T_parent_camera": looking_at(place + np.array([0.0, -1.0, 0.4]), place).tolist(),
        "size": [SIZE, SIZE],
        "intrinsics": [[30.0, 0.0, SIZE / 2], [0.0, 30.0, SIZE / 2], [0.0, 0.0, 1.0]],
    }
    plain = {"version": 1, "embodiment": "ur5e", "cameras": {"front": camera}}
    path.write_text(yaml.safe_dump(plain))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("source", ["ur5e.urdf", "my_arm.yaml"])
def test_a_set_of_a_ur5e_is_trained_on_with_gripper_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_ur5e(tmp_path / "ur5e.urdf")
    if source.endswith(".yaml"):
        call(data.main, "embodiment", "model=ur5e.urdf", f"output={source}")
    write_set(tmp_path / "recordings")
    write_calibration(tmp_path / "cameras.yaml", source)
    arguments = (
        "import",
        "path=recordings",
        "store=store",
        "cameras=cameras.yaml",
        "format.depth_unit_m=0.001",
        f"format.control_hz={HZ}",
        "layout=named",
        f"layout.embodiment={source}",
        "layout.angle_unit=rad",
        "layout.grippers={qpos_6: opening, action_6: opening}",
    )
    output = call(data.main, *arguments, code=2)
    assert "The data set numbers its joints; if they have the order of the robot" in output
    call(data.main, *arguments, f"layout.joints=[{','.join(JOINTS)}]")
    (tmp_path / "ur5e.urdf").unlink()  # The store has the kinematics.
    first, _ = EpisodeStore.open(tmp_path / "store").episodes()
    contract = first.attributes.contract
    robot = embodiment_of(contract)
    assert robot is not None
    assert contract.arms == ("arm",)
    q = np.asarray(first.arrays["joints/position"], np.float64)
    assert first.arrays["T_base_gripper/arm"] == pytest.approx(
        robot.forward_kinematics(q)["arm"], abs=1e-5
    )
    call(data.main, "verify", "store=store")
    for name, policy in {
        "places": ("policy.chunk=8", "policy.dim=32", "policy.depth=1"),
        "keyposes": ("training_recipe=keyposes", "policy.observation_encoder.voxels.tokens=24"),
    }.items():
        call(
            train.main,
            "dataset.path=store",
            f"output={name}",
            "policy.observation_encoder.dim=48",
            "policy.observation_encoder.depth=1",
            "trainer.steps=2",
            "trainer.batch_size=4",
            "trainer.compile=false",
            "validation_windows=0",
            *policy,
        )
        trained = load_policy(tmp_path / name / "checkpoint")
        assert trained.contract == contract
        assert embodiment_of(trained.contract) is not None


@pytest.mark.slow
def test_a_task_of_the_simulation_has_the_arm_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    write_arm(tmp_path)
    line = ("task=kuka_pick", "task.image_size=32", "task.cameras=[overhead]", "output=store")
    refused = call(collect.main, *line, "task.embodiment=aloha", code=2)
    assert "task.embodiment is 'aloha', which has two arms" in refused
    arm = "task.embodiment=my_arm.yaml"
    call(collect.main, *line, arm, "episodes=2", "workers=1")
    # Episodes of another arm do not belong to this store.
    assert "embodiment" in call(collect.main, *line, "episodes=3", code=2)
    first, _ = EpisodeStore.open(tmp_path / "store").episodes()
    contract = first.attributes.contract
    robot = embodiment_of(contract)
    assert contract.embodiment == "bench_with_gripper"
    assert robot is not None
    q = np.asarray(first.arrays["joints/position"], np.float64)
    assert first.arrays["T_base_gripper/arm"] == pytest.approx(
        robot.forward_kinematics(q)["arm"], abs=1e-5
    )
    assert "success (stage 3); recorded: success" in call(
        replay.main, "store=store", f"episode={first.name}"
    )
    call(
        train.main,
        "training_recipe=keyposes",
        "dataset.path=store",
        "output=run",
        "policy.observation_encoder.voxels.tokens=24",
        "policy.observation_encoder.dim=48",
        "policy.observation_encoder.depth=1",
        "trainer.steps=2",
        "trainer.batch_size=4",
        "trainer.compile=false",
        "validation_windows=0",
    )
    call(
        evaluate.main,
        "checkpoint=run/checkpoint",
        "output=out",
        "seeds=1",
        "workers=1",
        "videos=false",
        "task.time_limit_s=2",
    )
    about = json.loads((tmp_path / "out/results.jsonl").read_text().splitlines()[0])["about"]
    assert about["embodiment"] == "my_arm.yaml"
    report = (tmp_path / "out/report.html").read_text()
    assert "++task.embodiment=my_arm.yaml" in report


@pytest.mark.slow
def test_recordings_of_an_arm_that_come_as_files_fit_the_arm_of_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    write_arm(tmp_path, fingers=True)
    call(
        collect.main,
        "task=kuka_pick",
        "task.embodiment=my_arm.yaml",
        "task.image_size=32",
        "task.cameras=[overhead]",
        "output=store",
        "episodes=1",
        "workers=1",
    )
    call(data.main, "export", "store=store", "path=set", "target.images=image")
    call(
        data.main,
        "import",
        "format=lerobot",
        "path=set",
        "store=again",
        "task_name=kuka_pick",
        "layout=named",
        "layout.embodiment=my_arm.yaml",
        "layout.angle_unit=rad",
        "layout.grippers={one: opening}",
        "format.depth={}",
    )
    simulated, imported = (
        EpisodeStore.open(tmp_path / store).episodes()[0].attributes.contract
        for store in ("store", "again")
    )
    assert imported.kinematics is not None
    assert imported.with_cameras().incompatibilities(simulated) == []
    # The home pose in the cell is that of the cell, not that of the file.
    assert imported.kinematics["home"] != (simulated.kinematics or {})["home"]
