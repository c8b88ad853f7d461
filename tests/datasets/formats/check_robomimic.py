"""Comparison with robomimic: we import what its scripts write.

Run by `make interop`; the Python of its environment is the only argument. The scripts render a
recording of simulator states. robosuite is not needed: an environment of ours, derived from
robomimic's, shows known observations.
"""

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from interop import (
    HZ,
    LENGTHS,
    elsewhere,
    expect,
    image,
    images,
    imported_store,
    run_role,
    vectors,
)

OSC = {"type": "OSC_POSE", "control_delta": True, "output_max": [0.05] * 3 + [0.5] * 3}


def main() -> None:
    """The comparison, or its role in the environment of robomimic."""
    if run_role(ROLES):
        return
    from stringline.datasets.formats.robomimic import RobomimicReader

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        elsewhere("check_robomimic", sys.argv[1], "write", folder / "raw.hdf5", folder)
        reader = RobomimicReader(action_gripper="signed_closing", gripper_open_m=0.08)
        check(imported_store(reader, folder / "image.hdf5", folder / "imported"))


def check(store: Any) -> None:
    masks = []
    for number, episode in enumerate(store.episodes()):
        arrays = episode.arrays
        series = vectors(LENGTHS[number], number)
        scaled = np.asarray(series[:, :3] * np.float64(0.05), np.float32)
        expect(np.array_equal(arrays["action"][:, :3], scaled), "actions are in metres")
        expect(np.array_equal(arrays["rgb/agentview"], images(number)), "images are exact")
        place = arrays["T_base_gripper/robot0"][:, :3, 3]
        expect(np.array_equal(place, series[:, :3]), "positions of the gripper are exact")
        expect(episode.attributes.success is True, "it succeeded")
        masks += episode.attributes.extra["masks"]
    expect(sorted(masks) == ["train", "valid"], "an episode is held out by its mask")


def observation(step: int, episode: int) -> dict[str, Any]:
    series = vectors(LENGTHS[episode], episode)[min(step, LENGTHS[episode] - 1)]
    return {
        "agentview_image": image(step, episode),
        "robot0_eef_pos": series[:3],
        "robot0_eef_quat": np.array([0.0, 0.0, 0.0, 1.0]),
        "robot0_joint_pos": series[:7],
        "robot0_gripper_qpos": np.array([0.02, -0.02]),
    }


def write(raw: Path, _: Path) -> None:
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
    from stringline.encoders.pretrained.torchvision_operators import declare_torchvision_operators

    declare_torchvision_operators()
    base: Any = importlib.import_module("robomimic.envs.env_base").EnvBase

    class Replay(base):  # type: ignore[misc]
        """An environment whose state is the numbers of the step and the episode."""

        def __init__(self) -> None:
            self.state = (0, 0)

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
    script: Any = importlib.import_module("robomimic.scripts.dataset_states_to_obs")
    script.EnvUtils.create_env_for_data_processing = lambda **_: Replay()
    options = {"camera_names": ["agentview"], "camera_height": 48, "camera_width": 64}
    options |= {"n": None, "shaped": False, "done_mode": 0, "compress": True}
    options |= {name: False for name in ("copy_rewards", "copy_dones", "exclude_next_obs")}
    named = {"dataset": str(raw), "output_name": "image.hdf5"}
    script.dataset_states_to_obs(argparse.Namespace(**named, **options))
    split: Any = importlib.import_module("robomimic.scripts.split_train_val")
    split.split_train_val_from_hdf5(str(raw.with_name("image.hdf5")), val_ratio=0.5)


ROLES = {"write": write}

if __name__ == "__main__":
    main()
