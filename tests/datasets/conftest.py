"""Random episodes of a small contract, and a simulated demonstration."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.data import main
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.task_registry import make_task

# Shared machines stall now and then, so examples have no deadline.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

Arrays = dict[str, NDArray[Any]]
MakeEpisode = Callable[..., Arrays]
DataCommand = Callable[..., tuple[int, str, str]]
Knock = Callable[[str, NDArray[np.float64]], StoredEpisode]
TASK = "hand_over_banana"


@pytest.fixture
def data_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> DataCommand:
    """Returns a function that runs `stringline-data`; it returns the exit status and the output."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stringline-data", *words])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(str(ended.code))
        written = capsys.readouterr()
        return status, written.out, written.err

    return run


@pytest.fixture
def contract() -> Contract:
    """One arm of two joints; `front` has depth and a fixed pose, `wrist` moves and has no depth."""
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
    """Returns an episode with a new image of each camera every `every` steps."""
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
    """Returns the function that makes random episodes."""
    return random_episode


@pytest.fixture
def six_episodes(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Six episodes of 40 steps of 0.02 s; the even ones succeeded, the last has no result."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(6):
        success = None if seed == 5 else seed % 2 == 0
        arrays = make_episode(steps=40, seed=seed) | {"reward": np.arange(40, dtype=np.float32)}
        source = "expert" if seed < 3 else "teleoperation"
        store.write(
            arrays, EpisodeAttributes(contract, "reach", seed, success, source, extra={"scale": 2})
        )
    return store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """One episode of 100 steps and 5 frames, four RGB-D cameras at 200 pixels."""
    world = TaskEnvironment(make_task(TASK), image_size=200, frame_hz=2.5, time_limit_s=2.0)
    recording = record_episode(world, make_expert(TASK), 0)
    store = EpisodeStore.create(tmp_path_factory.mktemp("viewing") / "store")
    store.write(
        recording.arrays, EpisodeAttributes(world.contract, TASK, 0, instruction="hand it over")
    )
    world.close()
    return store


@pytest.fixture(scope="session")
def episode(store: EpisodeStore) -> StoredEpisode:
    return store.episodes()[0]


@pytest.fixture
def knocked(episode: StoredEpisode, tmp_path: Path) -> Knock:
    """Returns a function that stores the episode with the pose of a camera off by a transform.

    Depth gets the noise of a real camera, a standard deviation of 1 mm at 1 m that grows with the
    square of depth.
    """

    def make(camera: str, T: NDArray[np.float64]) -> StoredEpisode:
        store, rng = EpisodeStore.create(tmp_path / "knocked"), np.random.default_rng(0)
        arrays = dict(episode.arrays)
        for key in [key for key in arrays if key.startswith("depth/")]:
            depth = arrays[key].astype(np.float64)
            noise = rng.normal(size=depth.shape) * (depth / 1000) ** 2
            arrays[key] = np.rint(np.where(depth > 0, depth + noise, 0)).astype(np.uint16)
        arrays[f"T_base_camera/{camera}"] = (arrays[f"T_base_camera/{camera}"] @ T).astype(
            np.float32
        )
        return store.episode(store.write(arrays, replace(episode.attributes, seed=1)))

    return make
