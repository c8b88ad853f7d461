"""`stringline-data export`."""

import sys
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from stringline.datasets.store import EpisodeStore


def export_store(config: DictConfig) -> None:
    """Writes the episodes of a store in a foreign format.

    Raises:
        ValueError: The format cannot hold them, or there is something at the path.
        NoSpaceError: The disk is full.
    """
    store = EpisodeStore.open(config.store)
    instantiate(config.target, _convert_="all").write(store, Path(config.path))
    sys.stdout.write(f"{len(store)} episodes exported to {config.path}.\n")
