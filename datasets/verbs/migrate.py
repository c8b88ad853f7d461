"""`stringline-data migrate`."""

import sys

from omegaconf import DictConfig

from stringline.datasets.migration import migrate
from stringline.datasets.store import EpisodeStore
from stringline.datasets.versions import FORMAT_VERSION


def migrate_store(config: DictConfig) -> None:
    """Brings a store to the present version of the format."""
    store = EpisodeStore.open(config.store)
    rewritten = migrate(store)
    sys.stdout.write(f"{store.path}: {len(rewritten)} of {len(store)} episodes brought to format version {FORMAT_VERSION}.\n")
