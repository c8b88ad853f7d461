"""A small store of smooth motions of ALOHA, with instructions, and training windows."""

from pathlib import Path

import numpy as np

from stringline import ALOHA, Camera, EpisodeAttributes, EpisodeStore
from stringline.datasets.contract.contract import Array

CAMERAS = ("overhead", "wrist_left", "wrist_right", "table")
CONTRACT = ALOHA.contract([Camera(name, 32, 32, "simulated") for name in CAMERAS], 50.0)
TEXTS = ("put the mug on the plate", "hand over the pen")
STEPS, PERIOD = 24, 4


def motion(seed: int, steps: int = STEPS + 1) -> Array:
    """Returns joints (steps, J) on smooth ways near home, within the limits."""
    random = np.random.default_rng(seed)
    start = ALOHA.home + random.uniform(-0.15, 0.15, len(ALOHA.joints))
    rate, phase = random.uniform(-1, 1, len(ALOHA.joints)), random.uniform(0, 6, len(ALOHA.joints))
    time = np.arange(steps)[:, None] / 50.0
    return np.clip(
        start + 0.3 * np.sin(2 * rate * time + phase) - 0.3 * np.sin(phase),
        ALOHA.lower,
        ALOHA.upper,
    )


def episode(seed: int) -> dict[str, Array]:
    """Returns an episode whose joints follow their targets by one step; every fourth has images."""
    random, q = np.random.default_rng(seed), motion(seed)
    frames = -(-STEPS // PERIOD)
    arrays: dict[str, Array] = {
        "time": np.arange(STEPS) / 50.0,
        "joints/position": q[:-1].astype(np.float32),
        "action": q[1:].astype(np.float32),
    }
    arrays |= {
        f"T_base_gripper/{arm}": T.astype(np.float32)
        for arm, T in ALOHA.forward_kinematics(q[:-1]).items()
    }
    for name in CAMERAS:
        poses = np.stack([ALOHA.camera_poses(each)[name] for each in q[:-1:PERIOD]])
        depth = random.integers(300, 1200, (frames, 32, 32))
        depth[:, :16, :16] = 0
        arrays |= {
            f"rgb/{name}": random.integers(0, 256, (frames, 32, 32, 3)).astype(np.uint8),
            f"depth/{name}": depth.astype(np.uint16),
            f"frame/{name}": (np.arange(STEPS) // PERIOD).astype(np.int32),
            f"time/{name}": np.arange(0, STEPS, PERIOD) / 50.0,
            f"intrinsics/{name}": np.array([[40, 0, 16], [0, 40, 16], [0, 0, 1]], np.float32),
            f"T_base_camera/{name}": poses.astype(np.float32),
        }
    return arrays


def make_store(path: Path, episodes: int = 4, texts: tuple[str, ...] = TEXTS) -> EpisodeStore:
    """Writes a store whose episodes have the texts as instructions in turn."""
    store = EpisodeStore.create(path)
    for seed in range(episodes):
        attributes = EpisodeAttributes(
            CONTRACT, "move", seed, True, instruction=texts[seed % len(texts)]
        )
        store.write(episode(seed), attributes)
    return store


def observation_at(arrays: dict[str, Array], step: int) -> dict[str, Array]:
    """Returns the observation of a step of an episode, as for a session."""
    seen = {
        key: arrays[key][step]
        for key in ("time", "joints/position", *(f"T_base_gripper/{arm}" for arm in ALOHA.arms))
    }
    for name in CAMERAS:
        frame = arrays[f"frame/{name}"][step]
        seen |= {
            f"{kind}/{name}": arrays[f"{kind}/{name}"][frame]
            for kind in ("rgb", "depth", "time", "T_base_camera")
        }
        seen[f"intrinsics/{name}"] = arrays[f"intrinsics/{name}"]
    return seen
