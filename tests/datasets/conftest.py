"""A small contract with two cameras of different rates and sizes, and random episodes that fit it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from stringline.datasets.contract.contract import ActionDimension, Camera, Contract

# Shared machines stall now and then; an example may take its time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

Arrays = dict[str, NDArray[Any]]
MakeEpisode = Callable[..., Arrays]


@pytest.fixture
def contract() -> Contract:
    """One arm of two joints; `front` has depth and a fixed place, `wrist` moves and has none."""
    return Contract(
        embodiment="small",
        base_frame="table",
        control_hz=50.0,
        cameras=(Camera("front", 6, 8, depth="simulated"), Camera("wrist", 4, 4)),
        joints=("one/waist", "one/gripper"),
        arms=("one",),
        action=(
            ActionDimension("one/waist", "one", "joint"),
            ActionDimension("one/gripper", "one", "gripper", unit="opening"),
        ),
    )


def random_episode(steps: int = 20, seed: int = 0, every: tuple[int, int] = (4, 3)) -> Arrays:
    """Returns an episode whose cameras bring an image every `every` steps."""
    rng = np.random.default_rng(seed)
    time = np.arange(steps) * 0.02
    arrays: Arrays = {
        "time": time,
        "joints/position": rng.normal(size=(steps, 2)).astype(np.float32),
        "T_base_gripper/one": rng.normal(size=(steps, 4, 4)).astype(np.float32),
        "action": rng.normal(size=(steps, 2)).astype(np.float32),
        "T_base_camera/front": rng.normal(size=(4, 4)).astype(np.float32),
    }
    for name, (height, width), period in (("front", (6, 8), every[0]), ("wrist", (4, 4), every[1])):
        frames = -(-steps // period)
        arrays[f"rgb/{name}"] = rng.integers(0, 256, (frames, height, width, 3), np.uint8)
        arrays[f"frame/{name}"] = (np.arange(steps) // period).astype(np.int32)
        arrays[f"time/{name}"] = time[::period].copy()
        arrays[f"intrinsics/{name}"] = rng.normal(size=(3, 3)).astype(np.float32)
    arrays["depth/front"] = rng.integers(0, 5000, (len(arrays["rgb/front"]), 6, 8), np.uint16)
    arrays["T_base_camera/wrist"] = rng.normal(size=(len(arrays["rgb/wrist"]), 4, 4)).astype(
        np.float32
    )
    return arrays


@pytest.fixture
def make_episode() -> MakeEpisode:
    """Returns the maker of random episodes."""
    return random_episode
