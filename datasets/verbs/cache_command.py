"""`stringline-data cache`."""

import os
import sys
import time
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.editing.training_copy import Resolution, cache
from stringline.datasets.store.sizes import format_size, store_size
from stringline.datasets.store.store import EpisodeStore


def cache_store(config: DictConfig) -> None:
    """Creates or completes the training copy of a store."""
    store = EpisodeStore.open(config.store)
    cameras = None if config.cameras is None else list(config.cameras)
    resolution = Resolution(config.height, config.width, cameras, config.depth_method)
    expected = sum(resolution.size(episode) for episode in store.episodes())
    whole = format_size(store_size(store))
    sys.stdout.write(
        f"{store.path}: {len(store)} episodes, {whole}; the training copy will take "
        f"{format_size(expected)}.\n"
    )
    start = time.perf_counter()
    copy = cache(
        store, Path(config.output), resolution, workers=config.workers or os.cpu_count() or 1
    )
    seconds = time.perf_counter() - start
    sys.stdout.write(
        f"{copy.path}: {len(copy)} episodes, {format_size(store_size(copy))}, in {seconds:.1f} s.\n"
    )
