"""The store of `data.py`: moving textures with sensor noise, which do not compress."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore

Arrays = dict[str, NDArray[Any]]
STEPS, FRAME_EVERY, SIZE, JOINTS, CHUNK = 200, 4, 128, 14, 48
CONTROL_HZ = 50.0
CAMERAS = ("overhead", "wrist_left", "wrist_right", "table")  # Those of the default recipe.


def write_store(path: Path, episodes: int, cameras: int) -> EpisodeStore:
    """Fills a store with episodes of 200 steps and 50 images per camera, RGB-D of 128x128."""
    rng = np.random.default_rng(0)
    names = [
        CAMERAS[number] if number < len(CAMERAS) else f"camera_{number}"
        for number in range(cameras)
    ]
    joints = tuple(f"joint_{number}" for number in range(JOINTS))
    contract = Contract(
        embodiment="benchmark",
        base_frame="table",
        control_hz=CONTROL_HZ,
        cameras=tuple(Camera(name, SIZE, SIZE, "simulated") for name in names),
        joints=joints,
        arms=("left", "right"),
        action=tuple(ActionDimension(joint, "left", "joint") for joint in joints),
    )
    store = EpisodeStore.create(path)
    for seed in range(episodes):
        store.write(_episode(rng, names), EpisodeAttributes(contract, "benchmark", seed))
    return store


def _episode(rng: np.random.Generator, cameras: list[str]) -> Arrays:
    frames, time_s = STEPS // FRAME_EVERY, np.arange(STEPS) / CONTROL_HZ

    def numbers(*shape: int) -> NDArray[np.float32]:
        return rng.random(shape, np.float32)

    arrays = Arrays(time=time_s)
    arrays |= {key: numbers(STEPS, JOINTS) for key in ("joints/position", "action")}
    arrays |= {f"T_base_gripper/{arm}": _poses(rng, STEPS) for arm in ("left", "right")}
    for name in cameras:
        arrays[f"rgb/{name}"] = _moving(rng, frames, 3, 255, 4).astype(np.uint8)
        arrays[f"depth/{name}"] = _moving(rng, frames, 1, 2000, 8)[..., 0].astype(np.uint16)
        arrays[f"frame/{name}"] = (np.arange(STEPS) // FRAME_EVERY).astype(np.int32)
        arrays[f"time/{name}"] = time_s[::FRAME_EVERY].copy()
        arrays[f"T_base_camera/{name}"] = _poses(rng, frames)
        arrays[f"intrinsics/{name}"] = np.array(
            [[SIZE, 0, SIZE / 2], [0, SIZE, SIZE / 2], [0, 0, 1]], np.float32
        )
    return arrays


def _poses(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    poses = np.tile(np.eye(4, dtype=np.float32), (count, 1, 1))
    poses[:, :3, 3] = rng.random((count, 3), np.float32)
    return poses


def _moving(
    rng: np.random.Generator, frames: int, channels: int, top: int, noise: float
) -> NDArray[np.float32]:
    """Returns (F, H, W, C): blocks of 8 pixels that move by a pixel per frame, and noise."""
    texture = (
        np.kron(
            rng.random((SIZE // 8, SIZE // 8, channels), np.float32), np.ones((8, 8, 1), np.float32)
        )
        * top
    )
    images = np.stack([np.roll(texture, frame, axis=1) for frame in range(frames)])
    return np.clip(images + noise * rng.standard_normal(images.shape, np.float32), 0, top)
