"""`stringline-data summary`."""

import sys
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.viewing.store_summary import KINDS, summarise, write_summary


def summarise_store(config: DictConfig) -> None:
    """Writes the summary of a store as an HTML page."""
    store = EpisodeStore.open(config.store)
    page = Path(config.output) if config.output is not None else Path(f"{store.path}_summary.html")
    summary = summarise(store, sample_size=config.sample_size)
    write_summary(page, summary)
    found = ", ".join(
        f"{KINDS[kind].lower()} {len(each)}" for kind, each in summary.by_kind().items()
    )
    sys.stdout.write(
        f"{page}: {summary.episodes} episodes; {found}; damaged {len(summary.damaged)}.\n"
    )
