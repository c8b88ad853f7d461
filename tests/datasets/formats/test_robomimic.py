"""Imports of robomimic's HDF5, written by h5py in the documented layout, and their errors."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from tests.datasets.formats.conftest import Import

from stringline.datasets.embodiments.transforms import looking_at
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.robomimic import RobomimicReader
from stringline.datasets.formats.robosuite import Controller, controller_of
from stringline.datasets.loading.sampler import split_names
from stringline.datasets.store.store import EpisodeStore

Change = Callable[[Path], None]
LENGTHS = (5, 8, 4)
OSC = {"type": "OSC_POSE", "control_delta": True, "output_max": [0.05] * 3 + [0.5] * 3}
PARTS = {"type": "BASIC", "body_parts": {"right": {**OSC, "input_type": "delta"}}}
NAMED = {"action_gripper": "signed_closing", "gripper_open_m": 0.08}


def recorded(samples: Any, path: Path, controller: Any = OSC, arms: int = 1) -> Path:
    """Writes three demonstrations with a camera that has depth."""
    environment = {"env_name": "Lift", "env_type": 1}
    environment["env_kwargs"] = {
        "control_freq": 20,
        "robots": ["Panda"] * arms,
        "controller_configs": controller,
    }
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(environment)
        data.attrs["total"] = sum(LENGTHS)
        for number, steps in enumerate(LENGTHS):
            rng = np.random.default_rng(number)
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = steps
            demo["actions"] = rng.uniform(-1, 1, (steps, 7 * arms))
            demo["states"] = rng.normal(size=(steps, 30))
            demo["rewards"] = np.eye(steps)[-1] if number else np.zeros(steps)
            demo["dones"] = np.eye(steps)[-1].astype(np.int64)
            for arm in range(arms):
                fingers = rng.uniform(0, 0.04, (steps, 1))
                demo[f"obs/robot{arm}_eef_pos"] = rng.normal(size=(steps, 3))
                turns = Rotation.random(steps, random_state=number)
                demo[f"obs/robot{arm}_eef_quat"] = turns.as_quat()
                demo[f"obs/robot{arm}_joint_pos"] = rng.uniform(-2, 2, (steps, 7))
                demo[f"obs/robot{arm}_gripper_qpos"] = np.hstack([fingers, -fingers])
            images = [samples.image(frame, number) for frame in range(steps)]
            demo["obs/agentview_image"] = np.stack(images)
            demo["obs/agentview_depth"] = rng.uniform(0.5, 2, (steps, 16, 24, 1)).astype(np.float32)
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
        file["mask/valid"] = np.array([b"demo_1"])
    return path


@dataclass
class Lift:
    """A file of robomimic, and its import."""

    path: Path
    samples: Any
    run: Import

    def record(self, controller: Any = OSC, arms: int = 1) -> Path:
        return recorded(self.samples, self.path, controller, arms)

    def imported(self, **options: Any) -> tuple[EpisodeStore, Outcome]:
        return self.run(RobomimicReader(**NAMED, **options), self.path)


@pytest.fixture
def lift(tmp_path: Path, samples: Any, imported: Import) -> Lift:
    return Lift(tmp_path / "lift.hdf5", samples, imported)


@pytest.mark.parametrize("controller", [OSC, PARTS])
def test_recorded_data_is_imported(lift: Lift, samples: Any, controller: Any) -> None:
    path = lift.record(controller)
    assert samples.size_of(path) < 100_000
    store, outcome = lift.imported()
    assert outcome.refused == {}
    assert [episode.steps for episode in store.episodes()] == list(LENGTHS)
    episode = store.episodes()[1]
    arrays, contract = episode.arrays, episode.attributes.contract
    with h5py.File(path) as file:
        demo = {
            key: file["data/demo_1"][key][:]
            for key in ("actions", *(f"obs/{name}" for name in file["data/demo_1/obs"]))
        }
        states = file["data/demo_1/states"][:]
    np.testing.assert_allclose(arrays["action"][:, :3], 0.05 * demo["actions"][:, :3], rtol=1e-6)
    np.testing.assert_allclose(arrays["action"][:, 3:6], 0.5 * demo["actions"][:, 3:6], rtol=1e-6)
    np.testing.assert_allclose(arrays["action"][:, 6], (1 - demo["actions"][:, 6]) / 2, rtol=1e-6)
    np.testing.assert_allclose(
        arrays["joints/position"][:, :7], demo["obs/robot0_joint_pos"], rtol=1e-6
    )
    np.testing.assert_allclose(
        arrays["joints/position"][:, 7], demo["obs/robot0_gripper_qpos"][:, 0] / 0.04, rtol=1e-6
    )
    pose = arrays["T_base_gripper/robot0"]
    np.testing.assert_allclose(pose[:, :3, 3], demo["obs/robot0_eef_pos"], rtol=1e-6)
    np.testing.assert_allclose(
        pose[:, :3, :3], Rotation.from_quat(demo["obs/robot0_eef_quat"]).as_matrix(), atol=1e-6
    )
    np.testing.assert_array_equal(arrays["rgb/agentview"], demo["obs/agentview_image"])
    np.testing.assert_allclose(
        arrays["depth/agentview"], 1000 * demo["obs/agentview_depth"][..., 0], atol=0.51
    )
    assert [d.mode for d in contract.action] == ["relative"] * 6 + ["absolute"]
    assert (contract.embodiment, contract.control_hz, contract.arms) == ("Panda", 20, ("robot0",))
    assert [e.attributes.success for e in store.episodes()] == [False, True, True]
    masks = [e.attributes.extra["masks"] for e in store.episodes()]
    assert masks == [["train"], ["valid"], ["train"]]
    assert split_names(store, store.names(), 16) == (store.names()[::2], store.names()[1:2])
    np.testing.assert_allclose(arrays["series/states"], states)
    assert outcome.skipped_fields == {}


def test_two_arms_are_imported(lift: Lift) -> None:
    lift.record({"body_parts": {"arms": {"left": OSC, "right": OSC}}}, 2)
    store, outcome = lift.imported()
    assert outcome.refused == {}
    contract = store.episodes()[0].attributes.contract
    assert (contract.embodiment, contract.arms) == ("Panda+Panda", ("robot0", "robot1"))
    assert len(contract.action) == 14


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (OSC, Controller(0.05, 0.5, "relative")),
        ({**OSC, "control_delta": False}, Controller(1.0, 1.0, "absolute")),
        ([OSC, OSC], Controller(0.05, 0.5, "relative")),
        (
            {"body_parts": {"right": {**OSC, "control_delta": False, "input_type": "absolute"}}},
            Controller(1.0, 1.0, "absolute"),
        ),
    ],
)
def test_the_file_determines_the_meaning_of_actions(settings: Any, expected: Controller) -> None:
    assert controller_of({"env_kwargs": {"controller_configs": settings}}) == expected


MIXED = [OSC, {**OSC, "control_delta": False}]


@pytest.mark.parametrize(
    "settings", [None, {"type": "JOINT_POSITION"}, {"type": "OSC_POSE"}, MIXED]
)
def test_missing_options_are_reported(lift: Lift, settings: Any) -> None:
    lift.record(settings)
    with pytest.raises(ValueError, match="scales of its actions in m and rad; set format.control"):
        lift.imported()
    named = {"position_m": 0.1, "rotation_rad": 0.2, "relative": False}
    store, _ = lift.imported(controller=named)
    assert store.episodes()[0].attributes.contract.action[0].mode == "absolute"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gripper_open_m": 0.08}, "format.action_gripper is missing"),
        ({"action_gripper": "closing"}, "distance of open fingers, format.gripper_open_m=NUMBER"),
        ({**NAMED, "controller": {"position": 1}}, "'position'. Did you mean 'position_m'"),
        ({**NAMED, "controller": {"position_m": 1}}, "The controller has the fields position_m"),
        ({**NAMED, "action_gripper": {"closed": 1}}, "format.action_gripper is {'closed': 1}"),
        ({**NAMED, "action_gripper": "clsing"}, "There is no format.action_gripper 'clsing'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RobomimicReader(**options)


def spoilt(key: str, where: Any, value: float) -> Change:
    """Returns a function that writes a value into the second demonstration."""

    def change(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            file[f"data/demo_1/{key}"][where] = value

    return change


def swapped(key: str, value: Any) -> Change:
    """Returns a function that puts another data set in the place of one, or none."""

    def change(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            del file[f"data/demo_1/{key}"]
            if value is not None:
                file[f"data/demo_1/{key}"] = value

    return change


IMAGE, DEPTH, QUATERNION = "obs/agentview_image", "obs/agentview_depth", "obs/robot0_eef_quat"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoilt("actions", (3, 2), np.nan), "actions at frame 3, dimension 2, is nan"),
        (spoilt("actions", (3, 6), 4.0), "actions at frame 3, 'robot0/gripper', is 4; impossible"),
        (spoilt("obs/robot0_eef_pos", (2, 1), 450.0), "eef_pos at frame 2, 'y', is 450; allowed"),
        (spoilt(QUATERNION, 4, 0.9), "obs/robot0_eef_quat at frame 4 has length 1.8; a quaternion"),
        (spoilt("obs/robot0_joint_pos", (1, 0), 90.0), "'robot0/joint_1', is 90; impossible for"),
        (spoilt(DEPTH, (2, 0, 0), 700.0), "depth at frame 2 reaches 700; allowed: metres, at most"),
        (spoilt(DEPTH, (2, 0, 0), -1.0), "agentview_depth at frame 2 has values that are negative"),
        (swapped(DEPTH, np.full((8, 16, 24), 2, np.uint16)), "reaches 2; integers are millimetres"),
        (swapped(DEPTH, np.full((8, 9, 24), 900, np.uint16)), "at frame 0 has shape (9, 24)"),
        (swapped(DEPTH, np.zeros((8, 16, 24), bool)), "at frame 0 is bool; allowed: floats in m"),
        (swapped(IMAGE, np.zeros((7, 16, 24, 3), np.uint8)), "image has 7 frames, actions has 8"),
        (swapped(IMAGE, np.zeros((8, 16, 24), np.uint8)), "has shape (8, 16, 24); allowed: (T, H,"),
        (swapped(IMAGE, None), "There is no camera 'agentview'. Allowed: none."),
        (swapped(QUATERNION, None), "no data set 'obs/robot0_eef_quat'. Did you mean"),
        (swapped("actions", np.zeros((8, 8))), "actions has 8 numbers for 1 arms"),
    ],
)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    lift: Lift, change: Change, message: str
) -> None:
    change(lift.record())
    store, outcome = lift.imported(cameras={"agentview": "agentview"})
    assert list(outcome.refused) == ["episode 1 (lift.hdf5/demo_1)"]
    assert message in outcome.refused["episode 1 (lift.hdf5/demo_1)"]
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]


@pytest.mark.parametrize("shape", [(8, 2, 2), (7,)])
def test_rewards_of_another_shape_are_left_out(lift: Lift, shape: tuple[int, ...]) -> None:
    swapped("rewards", np.ones(shape))(lift.record())
    store, outcome = lift.imported()
    assert outcome.skipped_fields == {("rewards", "not one number per step of the action"): 1}
    assert ["reward" in episode.arrays for episode in store.episodes()] == [True, False, True]


def test_other_files_are_refused(lift: Lift) -> None:
    with h5py.File(lift.path, "w") as file:
        file["action"] = [1]
    with pytest.raises(ValueError, match="is not a file of robomimic: it has no group `data`. It"):
        lift.imported()
    with h5py.File(lift.record(), "r+") as file:
        del file["data"].attrs["env_args"]
    controller = {"position_m": 0.1, "rotation_rad": 0.2, "relative": True}
    with pytest.raises(ValueError, match="the control rate; set it, format.control_hz=NUMBER"):
        lift.imported(controller=controller)
    lift.path.write_bytes(lift.path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="lift.hdf5 cannot be read as HDF5; it is truncated"):
        lift.imported()


def described(path: Path, cameras: Any) -> Path:
    """Adds the calibration of the cameras to each demonstration, as robomimic's script does."""
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            demo.attrs["camera_info"] = cameras if isinstance(cameras, str) else json.dumps(cameras)
    return path


def test_the_calibration_of_fixed_cameras_is_imported(lift: Lift) -> None:
    K = [[20.0, 0.0, 12.0], [0.0, 20.0, 8.0], [0.0, 0.0, 1.0]]
    T = looking_at((0.5, 0.0, 1.4), (0.0, 0.0, 0.8))
    camera = {"intrinsics": K, "extrinsics": T.tolist()}
    cameras = {"agentview": camera, "robot0_eye_in_hand": camera, "birdview": camera}
    described(lift.record(), cameras)
    store, outcome = lift.imported()
    assert outcome.refused == {}
    for episode in store.episodes():
        assert episode.attributes.contract.camera("agentview").has_geometry
        np.testing.assert_array_equal(episode.arrays["intrinsics/agentview"], K)
        np.testing.assert_allclose(episode.arrays["T_base_camera/agentview"], T, atol=1e-7)
    hand = "poses that do not determine the place of the camera on the hand; cameras=FILE sets it"
    bird = "the calibration of a camera that is not imported"
    assert outcome.skipped_fields == {
        ("camera_info of robot0_eye_in_hand", hand): len(LENGTHS),
        ("camera_info of birdview", bird): len(LENGTHS),
    }
    kept = store.episodes()[0].attributes.extra["skipped_fields"]
    assert kept["camera_info of robot0_eye_in_hand"] == hand


@pytest.mark.parametrize(
    ("cameras", "message"),
    [
        ("{", "attrs['camera_info'] is not JSON"),
        ("[1]", "attrs['camera_info'] is not a mapping of cameras"),
        ({"agentview": {"intrinsics": 3}}, "attrs['camera_info'] is damaged at agentview: 'extr"),
        (
            {"agentview": {"intrinsics": [20, 20, 12, 8], "extrinsics": np.ones((4, 4)).tolist()}},
            "agentview: The calibration of the camera 'agentview' is invalid: T_parent_camera is",
        ),
    ],
)
def test_a_damaged_calibration_is_named(lift: Lift, cameras: Any, message: str) -> None:
    described(lift.record(), cameras)
    outcome = lift.imported()[1]
    assert len(outcome.refused) == len(LENGTHS)
    assert message in outcome.refused["episode 0 (lift.hdf5/demo_0)"]
