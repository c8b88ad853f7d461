"""Whether a store is still what was written: every byte of it is read."""

from stringline.datasets.store import EpisodeStore


def verify_store(store: EpisodeStore) -> dict[str, list[str]]:
    """Returns sentences about what is damaged, by episode; none for a store as it was written."""
    return {name: found for name in store.names() if (found := store.verify(name))}
