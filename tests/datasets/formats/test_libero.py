"""Imports of LIBERO's HDF5, written by h5py as its `create_dataset.py` does."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from tests.datasets.formats.conftest import Import

from stringline.datasets.formats.robomimic import LiberoReader

STEPS = (4, 6)
TASK = "open the drawer"


def recorded(samples: Any, path: Path, **attributes: Any) -> Path:
    """Writes two demonstrations; their images are upside down, as OpenGL renders them."""
    osc = {"type": "OSC_POSE", "control_delta": True, "output_max": [0.05] * 3 + [0.5] * 3}
    settings = {"robots": ["Panda"], "control_freq": 20, "controller_configs": osc}
    environment = {"type": 1, "env_name": "Kitchen", "bddl_file": "x", "env_kwargs": settings}
    known = {
        "env_args": json.dumps(environment),
        "problem_info": json.dumps({"language_instruction": f'"{TASK}"'}),
        "bddl_file_name": "somewhere/bddl_files/libero_90/drawer.bddl",
        "macros_image_convention": "opengl",
        **attributes,
    }
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for name, value in known.items():
            if value is not None:
                data.attrs[name] = value
        for number, steps in enumerate(STEPS):
            rng = np.random.default_rng(number)
            demo = data.create_group(f"demo_{number}")
            demo["actions"] = rng.uniform(-1, 1, (steps, 7))
            demo["rewards"] = np.eye(steps, dtype=np.uint8)[-1]
            demo["dones"] = np.eye(steps, dtype=np.uint8)[-1]
            demo["states"] = rng.normal(size=(steps, 30))
            fingers = rng.uniform(0, 0.04, (steps, 1))
            demo["obs/ee_pos"] = rng.normal(size=(steps, 3))
            demo["obs/ee_ori"] = rng.normal(size=(steps, 3))
            demo["obs/joint_states"] = rng.uniform(-2, 2, (steps, 7))
            demo["obs/gripper_states"] = np.hstack([fingers, -fingers])
            shown = np.stack([samples.image(frame, number) for frame in range(steps)])
            for camera in ("agentview", "eye_in_hand"):
                demo[f"obs/{camera}_rgb"] = shown[:, ::-1]
    return path


def test_recorded_data_is_imported(tmp_path: Path, imported: Import, samples: Any) -> None:
    path = recorded(samples, tmp_path / "drawer_demo.hdf5")
    store, outcome = imported(LiberoReader(cameras={"agentview": "front"}), path)
    assert outcome.refused == {}
    assert [episode.steps for episode in store.episodes()] == list(STEPS)
    episode = store.episodes()[1]
    arrays, attributes = episode.arrays, episode.attributes
    with h5py.File(path) as file:
        demo = {key: file[f"data/demo_1/{key}"][:] for key in ("actions", "obs/ee_ori")}
        demo |= {key: value[:] for key, value in file["data/demo_1/obs"].items()}
    for step in range(STEPS[1]):
        np.testing.assert_array_equal(arrays["rgb/front"][step], samples.image(step, 1))
    np.testing.assert_allclose(arrays["action"][:, :3], 0.05 * demo["actions"][:, :3], rtol=1e-6)
    np.testing.assert_allclose(arrays["action"][:, 6], (1 - demo["actions"][:, 6]) / 2, rtol=1e-6)
    np.testing.assert_allclose(arrays["joints/position"][:, :7], demo["joint_states"], rtol=1e-6)
    np.testing.assert_allclose(
        arrays["joints/position"][:, 7], demo["gripper_states"][:, 0] / 0.04, rtol=1e-6
    )
    pose = arrays["T_base_gripper/robot0"]
    np.testing.assert_allclose(pose[:, :3, 3], demo["ee_pos"], rtol=1e-6)
    turned = Rotation.from_rotvec(demo["ee_ori"]).as_matrix()
    np.testing.assert_allclose(pose[:, :3, :3], turned, atol=1e-6)
    assert (attributes.instruction, attributes.success) == (TASK, True)
    assert attributes.extra["bddl_file"] == "drawer.bddl"
    assert attributes.contract.control_hz == 20


def test_a_folder_has_a_file_per_task(tmp_path: Path, imported: Import, samples: Any) -> None:
    (tmp_path / "libero_90").mkdir()
    for number, task in enumerate(("open the drawer", "close the drawer")):
        info = json.dumps({"language_instruction": list(task)})
        recorded(samples, tmp_path / "libero_90" / f"{number}_demo.hdf5", problem_info=info)
    store, outcome = imported(LiberoReader(), tmp_path / "libero_90")
    assert (len(outcome.imported), outcome.refused) == (4, {})
    tasks = [episode.attributes.instruction for episode in store.episodes()]
    assert sorted(tasks) == ["close the drawer"] * 2 + ["open the drawer"] * 2


@pytest.mark.parametrize(
    ("option", "recorded_as", "upright"),
    [
        (None, "opengl", True),
        (None, None, True),
        (None, "opencv", False),
        ("opencv", "opengl", False),
    ],
)
def test_the_image_convention_decides_over_the_first_row(
    tmp_path: Path,
    imported: Import,
    samples: Any,
    option: str | None,
    recorded_as: str | None,
    upright: bool,
) -> None:
    path = recorded(samples, tmp_path / "a.hdf5", macros_image_convention=recorded_as)
    store, outcome = imported(LiberoReader(image_convention=option), path)
    assert outcome.refused == {}
    shown = store.episodes()[0].arrays["rgb/agentview"][0]
    np.testing.assert_array_equal(shown if upright else shown[::-1], samples.image(0))


def test_damage_and_invalid_options_are_reported(
    tmp_path: Path, imported: Import, samples: Any
) -> None:
    with pytest.raises(ValueError, match="There is no image convention 'open_gl'. Did you mean"):
        LiberoReader(image_convention="open_gl")
    without = recorded(samples, tmp_path / "a.hdf5", env_args="{}")
    with pytest.raises(ValueError, match=r"scales of its actions in m and rad; set format\.contro"):
        list(LiberoReader().episodes(without))
    path = recorded(samples, tmp_path / "b.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/obs/ee_pos"]
        file["data/demo_1/obs/joint_states"][2, 3] = np.nan
    refused = imported(LiberoReader(), path)[1].refused
    assert "There is no data set 'obs/ee_pos'." in refused["episode 0 (b.hdf5/demo_0)"]
    assert "obs/joint_states at frame 2" in refused["episode 1 (b.hdf5/demo_1)"]
    path = recorded(samples, tmp_path / "c.hdf5", problem_info="{", macros_image_convention="up")
    refused = imported(LiberoReader(), path)[1].refused
    assert "There is no image convention 'up'." in refused["episode 0 (c.hdf5/demo_0)"]
