"""`stringline-data verify`."""

import sys

from omegaconf import DictConfig

from stringline.datasets.store import EpisodeStore
from stringline.datasets.verification import verify_store


def verify(config: DictConfig) -> None:
    """Says what is damaged in a store.

    Raises:
        ValueError: Something is.
    """
    store = EpisodeStore.open(config.store)
    damage = verify_store(store)
    for sentence in (sentence for sentences in damage.values() for sentence in sentences):
        sys.stdout.write(f"{sentence}\n")
    if damage:
        raise ValueError(f"{len(damage)} of {len(store)} episodes in {store.path} are damaged; the others can be used.")
    sys.stdout.write(f"All {len(store)} episodes in {store.path} are as they were written.\n")
