"""`stringline-data archive` and `stringline-data expand`."""

import os
import sys
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.editing.archive import Remote, archive, estimated_size, expand
from stringline.datasets.store.store import EpisodeStore, format_size, store_size


def archive_store(config: DictConfig) -> None:
    """Creates or completes an archive of a store."""
    store = EpisodeStore.open(config.store)
    whole = store_size(store)
    sys.stdout.write(
        f"{store.path}: {len(store)} episodes, {format_size(whole)}; compressed about "
        f"{format_size(estimated_size(store))}.\n"
    )
    added = archive(store, str(config.output), workers=config.workers or os.cpu_count() or 1)
    sizes = Remote.at(str(config.output)).sizes()
    total = sum(sizes[name] for name in store.names())
    share = f", {total / whole:.0%} of the store" if whole else ""
    sys.stdout.write(
        f"{config.output}: {len(added)} episodes added; the archive of the store has "
        f"{format_size(total)}{share}.\n"
    )


def expand_archive(config: DictConfig) -> None:
    """Creates or completes a store from an archive."""
    sizes = Remote.at(str(config.archive)).sizes()
    sys.stdout.write(
        f"{config.archive}: {len(sizes)} episodes, {format_size(sum(sizes.values()))}.\n"
    )
    store = expand(
        str(config.archive), Path(config.output), workers=config.workers or os.cpu_count() or 1
    )
    sys.stdout.write(f"{store.path}: {len(store)} episodes, {format_size(store_size(store))}.\n")
