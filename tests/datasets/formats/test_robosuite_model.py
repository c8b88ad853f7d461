"""Fixed cameras in the models of the simulator that files contain, compared with MuJoCo's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import mujoco
import numpy as np
import pytest
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.small_sets import READERS, libero, robomimic

# The entries of the first two are those of robosuite's Lift, as its `sim.model.get_xml()` has them.
CAMERAS = {
    "agentview": 'pos="0.5 0 1.35" quat="0.653098 0.271041 0.271041 0.653098"',
    "frontview": 'pos="1.6 0 1.45" quat="0.560842 0.430646 0.430646 0.560842" mode="fixed"',
    "side": 'pos="-0.0565177 1.27612 1.48796" quat="0.00990507 0.00687796 0.591223 0.806418" '
    'fovy="75"',
    "plain": "",
}
MODEL = """<mujoco><worldbody>{}<body name="hand"><joint/><geom size="0.1"/>
  <camera name="eye_in_hand" pos="0.05 0 0" quat="0 0.707107 0.707107 0" fovy="75"/>
</body></worldbody></mujoco>"""


def model_of(**changed: str) -> str:
    """Returns a model with the cameras, of which some have other attributes."""
    entries = CAMERAS | changed
    return MODEL.format("".join(f'<camera name="{n}" {of}/>' for n, of in entries.items()))


def described(path: Path, model: str, camera: str) -> Path:
    """Adds a model to a file of LIBERO or robomimic, whose camera gets another name."""
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            demo.attrs["model_file"] = model
            for old, new in (("agentview_rgb", f"{camera}_rgb"), ("top_image", f"{camera}_image")):
                if old in demo["obs"] and old != new:
                    demo["obs"].move(old, new)
    return path


@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize(("name", "write"), [("libero", libero), ("robomimic", robomimic)])
def test_fixed_cameras_have_the_geometry_of_mujoco(
    tmp_path: Path, imported: Import, name: str, write: Callable[[Path], Path], camera: str
) -> None:
    path = described(write(tmp_path), model_of(), camera)
    store, outcome = imported(READERS[name], path)
    assert outcome.refused == {}
    model: Any = mujoco.MjModel.from_xml_string(model_of())
    data: Any = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    place = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera)
    T = np.eye(4)
    T[:3, :3] = data.cam_xmat[place].reshape(3, 3) * [1, -1, -1]
    T[:3, 3] = data.cam_xpos[place]
    focal = 16 / 2 / np.tan(np.radians(model.cam_fovy[place]) / 2)
    for episode in store.episodes():
        assert episode.attributes.contract.camera(camera).has_geometry
        np.testing.assert_allclose(episode.arrays[f"T_base_camera/{camera}"], T, atol=1e-6)
        K = [[focal, 0, 12], [0, focal, 8], [0, 0, 1]]
        np.testing.assert_allclose(episode.arrays[f"intrinsics/{camera}"], K, rtol=1e-6)
    assert not [key for key, _ in outcome.skipped_fields if key.startswith("pose of")]


@pytest.mark.parametrize(
    ("camera", "model"),
    [
        ("eye_in_hand", model_of()),
        ("other", model_of()),
        ("agentview", model_of(agentview='mode="targetbody" target="hand"')),
        ("agentview", model_of(agentview='pos="0 0 1" euler="90 0 0"')),
        ("agentview", model_of(agentview='focal="1 1" sensorsize="1 1" resolution="9 9"')),
    ],
)
def test_other_cameras_stay_without_geometry(
    tmp_path: Path, imported: Import, camera: str, model: str
) -> None:
    store, outcome = imported(READERS["libero"], described(libero(tmp_path), model, camera))
    assert not store.episodes()[0].attributes.contract.camera(camera).has_geometry
    why = "no fixed camera of the model in the file; cameras=FILE sets it"
    assert outcome.skipped_fields[f"pose of {camera}", why] == len(store) == 3


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        "",
        "no XML",
        "<mujoco/>",
        "<mujoco><worldbody>",
        BOMB + model_of(),
        "<a>" * 100_000,
        '<mujoco><default><camera fovy="9"/></default>' + model_of().removeprefix("<mujoco>"),
    ],
)
def test_models_that_are_not_read_cost_no_episode(
    tmp_path: Path, imported: Import, model: str
) -> None:
    path = libero(tmp_path)
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            demo.attrs.create("model_file", model, dtype=h5py.string_dtype())
    store, outcome = imported(READERS["libero"], path)
    assert (len(store), outcome.refused) == (3, {})
    assert not store.episodes()[0].attributes.contract.camera("agentview").has_geometry


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('pos="1 2"', "attrs['model_file'] is damaged at agentview: '1 2' must be 3 numbers."),
        ('pos="nan 0 0"', "'nan 0 0' must be 3 numbers."),
        ('quat="0 0 0 0"', "quat at frame 0 has length 0; a quaternion has length 1."),
        ('fovy="x"', "could not convert string to float: 'x'"),
        ('fovy="-20"', "fovy is -20; allowed: degrees above 0 and below 180."),
        ('fovy="0"', "fovy is 0; allowed: degrees above 0 and below 180."),
    ],
)
def test_damaged_numbers_are_named(
    tmp_path: Path, imported: Import, entry: str, message: str
) -> None:
    path = described(libero(tmp_path), model_of(agentview=entry), "agentview")
    _, outcome = imported(READERS["libero"], path)
    assert len(outcome.refused) == 3
    assert all(message in output for output in outcome.refused.values())
