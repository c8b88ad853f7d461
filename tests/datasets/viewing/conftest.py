"""The beginning of a simulated demonstration with all cameras, recorded once; and the same with a camera that was knocked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert import make_expert
from stringline.sim.tasks.task_catalogue import make_task

TASK = "hand_over_banana"
Knock = Callable[[str, NDArray[np.float64]], StoredEpisode]


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
    """Returns a maker of the same episode whose extrinsics of a camera are off by a transform in the camera's frame.

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
