"""`stringline-data verify` and `stringline-data migrate`."""

import sys

from omegaconf import DictConfig

from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.editing.edit import delete
from stringline.datasets.images.image_store import ImageStore, is_image_store
from stringline.datasets.store.group_metadata import FORMAT_VERSION
from stringline.datasets.store.migration import migrate
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of
from stringline.datasets.store.verification import describe_leftover, verify_store


def migrate_store(config: DictConfig) -> None:
    """Brings a store to the present version of the format."""
    store = EpisodeStore.open(config.store)
    rewritten = migrate(store)
    sys.stdout.write(
        f"{store.path}: {len(rewritten)} of {len(store)} episodes brought to format version "
        f"{FORMAT_VERSION}.\n"
    )


def verify(config: DictConfig) -> None:
    """Reports the damage of a store, and sets damaged episodes aside if configured."""
    if is_image_store(config.store):
        _verify_images(ImageStore(config.store), set_aside=config.set_aside)
        return
    store = EpisodeStore.open(config.store)
    damage = verify_store(store)
    for sentence in (sentence for sentences in damage.values() for sentence in sentences):
        sys.stdout.write(f"{printable(sentence)}\n")
    for left in store.leftovers():
        sys.stdout.write(f"{describe_leftover(left)} The next recording removes it.\n")
    if damage and config.set_aside:
        delete(store, list(damage))
        raise ValueError(
            f"{len(damage)} damaged episodes moved to {trash_of(store.path)}; {len(store)} intact "
            "episodes remain."
        )
    if damage:
        advice = f"Set them aside: stringline-data verify store={store.path} set_aside=true"
        raise ValueError(
            f"{len(damage)} of {len(store)} episodes in {store.path} are damaged; the others can "
            f"be used. {advice}"
        )
    old = sum(episode.version < FORMAT_VERSION for episode in store.episodes())
    sys.stdout.write(f"All {len(store)} episodes in {store.path} are intact.\n")
    if old or store.version < FORMAT_VERSION:
        sys.stdout.write(
            f"{old} of them have an older format without checksums of metadata. Migrate them: "
            f"stringline-data migrate store={store.path}\n"
        )


def _verify_images(store: ImageStore, *, set_aside: bool) -> None:
    if set_aside:
        raise ValueError(f"{store.path} has no episodes that set_aside could move.")
    if damaged := store.damaged():
        raise ValueError(f"{store.path} is damaged: {', '.join(damaged)} have changed.")
    sys.stdout.write(f"All {len(store)} {store.kind} in {store.path} are intact.\n")
