"""Rewriting the metadata of an older store as the present version writes it; arrays stay as they are."""

from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.datasets.store.checksummed_metadata import sealed_group
from stringline.datasets.store.episode import StoredEpisode, episode_metadata
from stringline.datasets.store.episode_pool import for_each_episode
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.versions import FORMAT_VERSION, ROOT_KEY


def migrate(store: EpisodeStore) -> list[str]:
    """Brings a store to the present version of the format; stopped at any time, it goes on where it was.

    Every episode is verified first. Its metadata is replaced as a whole, so that a reader sees the
    old one or the new one.

    Returns:
        The episodes that were rewritten.

    Raises:
        ValueError: Some episodes are damaged; all others are rewritten.
    """
    with exclusive(store.path):
        older = [episode.name for episode in store.episodes() if episode.version < FORMAT_VERSION]
        for_each_episode(lambda name: _rewrite(store.episode(name)), older, 1, "migrate")
        if store.version < FORMAT_VERSION:
            write_file(store.path / "zarr.json", sealed_group({ROOT_KEY: FORMAT_VERSION}))
    return older


def _rewrite(episode: StoredEpisode) -> None:
    episode.require_whole()
    write_file(episode.path / "zarr.json", episode_metadata(episode.attributes, episode.entries))
