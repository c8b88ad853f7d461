"""Valid small data sets of each format, which the hostile ones are made from."""

import json
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from tests.datasets.formats import mcap_recordings
from tests.datasets.formats.lerobot_recordings import recorded
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader, UmiReader
from stringline.datasets.formats.foreign import Reader
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.mcap import McapReader
from stringline.datasets.formats.rlds import RldsReader
from stringline.datasets.formats.robomimic import LiberoReader, RobomimicReader
from stringline.datasets.formats.vector_layout import AlohaLayout, NamedLayout
from stringline.datasets.formats.video import write_video

PERCENT = {"closed": 0, "opened": 100}
OPENINGS = AlohaLayout("opening", "opening")
EPISODES = 3
STEPS = 5
SIZE = (16, 24, 3)

MCAP: dict[str, Any] = {
    "control_hz": 20,
    "state": {"/joint_states": None},
    "action": {"/command": None},
    "cameras": {"/front/image_raw": "front"},
}
RLDS: dict[str, Any] = {
    "control_hz": 20,
    "state": ["observation/state"],
    "action": ["action/joints", "action/gripper"],
}
MAKERS: dict[str, Callable[..., Reader]] = {
    "act_hdf5": partial(ActHdf5Reader, OPENINGS, control_hz=50),
    "robomimic": partial(RobomimicReader, action_gripper="signed_closing", gripper_open_m=0.08),
    "diffusion_policy": partial(DiffusionPolicyReader, OPENINGS, control_hz=10),
    "umi": partial(UmiReader, gripper_open_m=0.08, control_hz=60),
    "lerobot": partial(LeRobotReader, OPENINGS),
    "libero": LiberoReader,
    "mcap": partial(
        McapReader,
        NamedLayout({"gripper": PERCENT, "data.2": PERCENT}, angle_unit="rad"),
        **MCAP,
    ),
    "rlds": partial(RldsReader, OPENINGS, **RLDS),
}
"""Functions that make a reader of each format; options replace those of the small data sets."""

READERS: dict[str, Reader] = {name: make() for name, make in MAKERS.items()}


def image(frame: int, _: int = 0) -> NDArray[np.uint8]:
    return np.full(SIZE, 40 + frame, np.uint8)


def joints(steps: int, seed: int = 0) -> NDArray[np.float32]:
    # Not zero: zarr leaves chunks of zeros out.
    return np.full((steps, 14), 0.01 + 0.01 * (seed % 50), np.float32)


def act(folder: Path, images: Any = None) -> Path:
    """Writes three files; `images` replaces the images of the second one."""
    root = folder / "set"
    root.mkdir()
    for episode in range(EPISODES):
        with h5py.File(root / f"episode_{episode}.hdf5", "w") as file:
            file["action"] = joints(STEPS, episode)
            file["observations/qpos"] = joints(STEPS, episode)
            shown = np.stack([image(frame) for frame in range(STEPS)])
            file["observations/images/top"] = (
                images if images is not None and episode == 1 else shown
            )
    return root


def robomimic(folder: Path) -> Path:
    controller = {"type": "OSC_POSE", "control_delta": True, "output_max": [0.05] * 3 + [0.5] * 3}
    environment = {
        "env_name": "Lift",
        "env_kwargs": {"control_freq": 20, "robots": ["Panda"], "controller_configs": controller},
    }
    with h5py.File(folder / "lift.hdf5", "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps(environment)
        for episode in range(EPISODES):
            demo = file.create_group(f"data/demo_{episode}")
            demo["actions"] = np.full((STEPS, 7), 0.1 * episode)
            demo["rewards"] = np.zeros(STEPS)
            demo["obs/robot0_eef_pos"] = np.zeros((STEPS, 3))
            demo["obs/robot0_eef_quat"] = np.tile([0.0, 0.0, 0.0, 1.0], (STEPS, 1))
            demo["obs/top_image"] = np.stack([image(frame) for frame in range(STEPS)])
        file["mask/train"] = np.array([b"demo_0"])
    return folder / "lift.hdf5"


def _series(steps: int) -> dict[str, NDArray[Any]]:
    return {
        "img": np.stack([image(frame) for frame in range(steps)]),
        "state": joints(steps),
        "action": np.concatenate([joints(n, e) for e, n in enumerate(LENGTHS)]),
    }


def diffusion_policy(folder: Path, codecs: Any = None, name: str = "set.zarr") -> Path:
    return replay_buffer(folder / name, _series(sum(LENGTHS)), codecs)


def recording(folder: Path) -> Path:
    """Writes a raw recording of diffusion_policy: numbers, and a video of each episode at 30 Hz."""
    root = folder / "demo"
    series = _series(sum(LENGTHS))
    del series["img"]
    replay_buffer(root / "replay_buffer.zarr", series)
    for number, steps in enumerate(LENGTHS):
        video(root / f"videos/{number}/0.mp4", [image(frame) for frame in range(3 * steps)])
    return root


def video(path: Path, frames: Sequence[NDArray[np.uint8]]) -> None:
    """Writes a video of 30 frames per second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"crf": "5", "g": "2", "preset": "ultrafast"}
    write_video(path, frames, fps=30, codec="libx264", pixel_format="yuv420p", options=options)


def umi(folder: Path, codecs: Any = None) -> Path:
    steps = sum(LENGTHS)
    hand = {
        "camera0_rgb": np.stack([image(frame) for frame in range(steps)]),
        "robot0_eef_pos": np.linspace(0.1, 1, 3 * steps).reshape(-1, 3).astype(np.float32),
        "robot0_eef_rot_axis_angle": np.full((steps, 3), 0.1, np.float32),
        "robot0_gripper_width": np.full((steps, 1), 0.04, np.float32),
    }
    return replay_buffer(folder / "cup.zarr.zip", hand, codecs)


def lerobot(folder: Path, images: str = "image", version: str = "v2.1") -> Path:
    return recorded(SimpleNamespace(image=image, joints=joints), folder / "set", version, images)


def libero(folder: Path) -> Path:
    path = robomimic(folder)
    problem = json.dumps({"language_instruction": "lift the cube"})
    with h5py.File(path, "r+") as file:
        file["data"].attrs["problem_info"] = problem
        file["data"].attrs["macros_image_convention"] = "opengl"
        for demo in file["data"].values():
            del demo["obs"]
            demo["obs/ee_pos"] = np.zeros((STEPS, 3))
            demo["obs/ee_ori"] = np.full((STEPS, 3), 0.1)
            demo["obs/joint_states"] = np.full((STEPS, 7), 0.1)
            demo["obs/gripper_states"] = np.full((STEPS, 2), 0.02)
            demo["obs/agentview_rgb"] = np.stack([image(frame) for frame in range(STEPS)])
    return path


def mcap(folder: Path) -> Path:
    root = folder / "bags"
    root.mkdir()
    for episode in range(EPISODES):
        entries = mcap_recordings.ros2_entries(0.2 + 0.1 * episode)
        mcap_recordings.write_ros2(root / f"take_{episode}.mcap", entries)
    return root


def mcap_parts(folder: Path) -> Path:
    """Writes recordings that rosbag2 split in two."""
    for episode in range(EPISODES):
        entries = mcap_recordings.ros2_entries(0.2 + 0.1 * episode)
        mcap_recordings.write_split(folder / "bags" / f"take_{episode}", entries, 0.11)
    return folder / "bags"


def databases(folder: Path) -> Path:
    """Writes recordings as databases of rosbag2."""
    (folder / "bags").mkdir()
    for episode in range(EPISODES):
        entries = mcap_recordings.ros2_entries(0.2 + 0.1 * episode)
        mcap_recordings.write_database(folder / "bags" / f"take_{episode}", entries)
    return folder / "bags"


def rlds(folder: Path) -> Path:
    """Writes the records of the two files of the fixture, and the first again, into one file."""
    with zipfile.ZipFile(Path(__file__).parent / "fixtures" / "rlds.zip") as archive:
        archive.extractall(folder)
    train, val = sorted((folder / "small" / "1.0.0").glob("*.tfrecord-*"))
    first, second = train.read_bytes(), val.read_bytes()
    val.unlink()
    train.write_bytes(first + second + first)
    return folder / "small"


WRITERS: dict[str, Callable[[Path], Path]] = {
    "act_hdf5": act,
    "robomimic": robomimic,
    "diffusion_policy": diffusion_policy,
    "umi": umi,
    "lerobot": lerobot,
    "libero": libero,
    "mcap": mcap,
    "rlds": rlds,
}

VARIANTS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    **{name: (name, writer) for name, writer in WRITERS.items()},
    "diffusion_policy, videos": ("diffusion_policy", recording),
    "mcap, parts": ("mcap", mcap_parts),
    "mcap, databases": ("mcap", databases),
    "lerobot, mp4": ("lerobot", partial(lerobot, images="libx264")),
    "lerobot v3.0": ("lerobot", partial(lerobot, version="v3.0")),
    "lerobot v3.0, mp4": ("lerobot", partial(lerobot, images="libx264", version="v3.0")),
    "lerobot v3.0, mp4 of depth": ("lerobot", partial(lerobot, images="depth", version="v3.0")),
}
"""The name of the format and a writer, for each form of a format that other code reads."""
