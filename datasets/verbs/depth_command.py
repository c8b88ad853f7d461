"""`stringline-data depth`."""

import sys
import time
from pathlib import Path

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig

from stringline.datasets.contract.contract import Array
from stringline.datasets.editing.depth_estimation import DepthEstimation, estimate_depth
from stringline.datasets.store.sizes import format_size
from stringline.datasets.store.store import EpisodeStore


def estimate_depth_of_store(config: DictConfig) -> None:
    """Creates or completes a copy of a store with estimated depth."""
    store = EpisodeStore.open(config.store)
    cameras = None if config.cameras is None else [str(name) for name in config.cameras]
    settings = {
        key: config[key] for key in ("replace_depth", "depth_unit_m", "farthest_m", "batch")
    }
    # Checks the settings before a model is loaded.
    planned = DepthEstimation(_not_yet, str(config.model), cameras, **settings)
    expected = sum(planned.size(episode) for episode in store.episodes())
    sys.stdout.write(
        f"{store.path}: {len(store)} episodes; their depth will take {format_size(expected)}.\n"
    )
    estimation = DepthEstimation(
        instantiate(config.estimator), str(config.model), cameras, **settings
    )
    start = time.perf_counter()
    copy = estimate_depth(store, Path(config.output), estimation)
    seconds = time.perf_counter() - start
    sys.stdout.write(
        f"{copy.path}: {len(copy)} episodes with estimated depth, after {seconds:.1f} s.\n"
    )


def _not_yet(images: Array) -> NDArray[np.float32]:
    raise AssertionError("Sizes are known without the model.")
