"""Comparison with robomimic: we import what its scripts write.

Run by `make interop`; the Python of its environment is the only argument. The scripts render a
recording of simulator states. robosuite is not needed: an environment of ours, derived from
robomimic's, shows known observations. With robosuite and a version of robomimic that writes the
calibration of cameras (0.4 and newer, on GitHub only), the cameras are those of a task of
robosuite, and their calibration is compared, too.
"""

import argparse
import importlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from interop import (
    HZ,
    LENGTHS,
    SHAPE,
    elsewhere,
    expect,
    image,
    images,
    imported_store,
    run_role,
    vectors,
)

CAMERA, IN_HAND = "agentview", "robot0_eye_in_hand"
OSC = {"type": "OSC_POSE", "control_delta": True, "output_max": [0.05] * 3 + [0.5] * 3}


def main() -> None:
    """The comparison, or its role in the environment of robomimic."""
    if run_role(ROLES):
        return
    from stringline.datasets.formats.robomimic import RobomimicReader

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cameras = folder / "cameras.npz"
        elsewhere("check_robomimic", sys.argv[1], "write", folder / "raw.hdf5", cameras)
        reader = RobomimicReader(action_gripper="signed_closing", gripper_open_m=0.08)
        store = imported_store(reader, folder / "image.hdf5", folder / "imported")
        check(store)
        if cameras.exists():
            check_cameras(store, np.load(cameras))
        else:
            sys.stdout.write("--  this robomimic, or its environment, has no calibration\n")


def check(store: Any) -> None:
    masks = []
    for number, episode in enumerate(store.episodes()):
        arrays = episode.arrays
        series = vectors(LENGTHS[number], number)
        scaled = np.asarray(series[:, :3] * np.float64(0.05), np.float32)
        expect(np.array_equal(arrays["action"][:, :3], scaled), "actions are in metres")
        expect(np.array_equal(arrays[f"rgb/{CAMERA}"], images(number)), "images are exact")
        place = arrays["T_base_gripper/robot0"][:, :3, 3]
        expect(np.array_equal(place, series[:, :3]), "positions of the gripper are exact")
        expect(episode.attributes.success is True, "it succeeded")
        masks += episode.attributes.extra["masks"]
    expect(sorted(masks) == ["train", "valid"], "an episode is held out by its mask")


def check_cameras(store: Any, expected: Any) -> None:
    for episode in store.episodes():
        contract, arrays = episode.attributes.contract, episode.arrays
        expect(contract.camera(CAMERA).has_geometry, "the fixed camera is calibrated")
        found = arrays[f"intrinsics/{CAMERA}"]
        expect(np.allclose(found, expected["intrinsics"], rtol=1e-6), "its intrinsics are right")
        found = arrays[f"T_base_camera/{CAMERA}"]
        expect(np.allclose(found, expected["T_world_camera"], atol=1e-6), "its pose is right")
        expect(not contract.camera(IN_HAND).has_geometry, "the camera in the hand has no pose")
        left = episode.attributes.extra["skipped_fields"]
        expect(f"camera_info of {IN_HAND}" in left, "which the import reports")


def observation(step: int, episode: int) -> dict[str, Any]:
    series = vectors(LENGTHS[episode], episode)[min(step, LENGTHS[episode] - 1)]
    return {
        f"{CAMERA}_image": image(step, episode),
        f"{IN_HAND}_image": image(step, episode),
        "robot0_eef_pos": series[:3],
        "robot0_eef_quat": np.array([0.0, 0.0, 0.0, 1.0]),
        "robot0_joint_pos": series[:7],
        "robot0_gripper_qpos": np.array([0.02, -0.02]),
    }


def write(raw: Path, cameras: Path) -> None:
    """In its environment: writes states, then observations and masks by its scripts."""
    settings = {"control_freq": HZ, "robots": ["Panda"], "controller_configs": OSC}
    description = {"env_name": "Lift", "type": 1, "env_kwargs": settings}
    with importlib.import_module("h5py").File(raw, "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps(description)
        for episode, steps in enumerate(LENGTHS):
            demo = file["data"].create_group(f"demo_{episode}")
            demo.attrs["model_file"] = "<mujoco/>"
            demo["states"] = [[step, episode] for step in range(steps)]
            demo["actions"] = vectors(steps, episode)[:, :7]
    from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators

    declare_torchvision_operators()
    script: Any = importlib.import_module("robomimic.scripts.dataset_states_to_obs")
    scene = _scene() if hasattr(script, "get_camera_info") else None
    name = "env_base.EnvBase" if scene is None else "env_robosuite.EnvRobosuite"
    module, _, of = f"robomimic.envs.{name}".rpartition(".")
    base: Any = getattr(importlib.import_module(module), of)

    class Replay(base):  # type: ignore[misc]
        """An environment whose state is the numbers of the step and the episode."""

        def __init__(self) -> None:
            self.state = (0, 0)
            self.env = scene

        def reset(self) -> Any:
            return observation(*self.state)

        def reset_to(self, state: Any) -> Any:
            self.state = tuple(map(int, state["states"]))
            return observation(*self.state)

        def step(self, _: Any) -> Any:
            self.state = (self.state[0] + 1, self.state[1])
            return observation(*self.state), 0.0, False, {}

        def get_reward(self) -> float:
            return float(self.is_success()["task"])

        def is_success(self) -> dict[str, bool]:
            return {"task": self.state[0] == LENGTHS[self.state[1]]}

        def serialize(self) -> Any:
            return description

    Replay.__abstractmethods__ = frozenset()
    script.EnvUtils.create_env_for_data_processing = lambda **_: Replay()
    options = {"camera_names": [CAMERA, IN_HAND], "camera_height": 48, "camera_width": 64}
    options |= {"n": None, "depth": False, "shaped": False, "done_mode": 0, "compress": True}
    options |= {name: False for name in ("copy_rewards", "copy_dones", "exclude_next_obs")}
    named = {"dataset": str(raw), "output_name": "image.hdf5"}
    script.dataset_states_to_obs(argparse.Namespace(**named, **options))
    if scene is not None:
        np.savez(cameras, **_calibration(scene))
    split: Any = importlib.import_module("robomimic.scripts.split_train_val")
    split.split_train_val_from_hdf5(str(raw.with_name("image.hdf5")), val_ratio=0.5)


def _scene() -> Any:
    """Returns a task of robosuite whose images are not rendered, or None without robosuite."""
    if importlib.util.find_spec("robosuite") is None:
        return None
    options = dict.fromkeys(("has_renderer", "has_offscreen_renderer", "use_camera_obs"), False)
    scene = importlib.import_module("robosuite").make("Lift", robots="Panda", **options)
    scene.reset()
    return scene


def _calibration(scene: Any) -> dict[str, Any]:
    """Returns intrinsics and pose of the fixed camera from MuJoCo's own numbers.

    MuJoCo's cameras look along -z, with y up.
    """
    camera = scene.sim.model.camera_name2id(CAMERA)
    height, width, _ = SHAPE
    focal = height / 2 / np.tan(np.radians(scene.sim.model.cam_fovy[camera]) / 2)
    T = np.eye(4)
    T[:3, :3] = scene.sim.data.cam_xmat[camera].reshape(3, 3) @ np.diag([1.0, -1.0, -1.0])
    T[:3, 3] = scene.sim.data.cam_xpos[camera]
    K = [[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]]
    return {"intrinsics": K, "T_world_camera": T}


ROLES = {"write": write}

if __name__ == "__main__":
    main()
