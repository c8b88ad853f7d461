"""Sizes of stores, and sizes in words."""

from stringline.datasets.store.store import EpisodeStore


def store_size(store: EpisodeStore) -> int:
    """Returns the bytes of all arrays of a store."""
    return sum(episode.nbytes for episode in store.episodes())


def format_size(size: float) -> str:
    """Returns a size with its unit: `3.2 MiB`, `41 MiB`, `1.6 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
