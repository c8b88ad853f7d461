"""Migration of an older store: its metadata is rewritten, its arrays stay unchanged."""

from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.datasets.store.episode import StoredEpisode, episode_metadata
from stringline.datasets.store.episode_pool import for_each_episode
from stringline.datasets.store.group_metadata import FORMAT_VERSION, ROOT_KEY, checksummed_group
from stringline.datasets.store.store import EpisodeStore


def migrate(store: EpisodeStore) -> list[str]:
    """Brings a store to the present version of the format; it may be interrupted and repeated.

    Every episode is verified first. Its metadata is replaced atomically. Returns the names of the
    rewritten episodes.
    """
    with exclusive(store.path):
        older = [episode.name for episode in store.episodes() if episode.version < FORMAT_VERSION]
        for_each_episode(lambda name: _rewrite(store.episode(name)), older, 1, "migrate")
        if store.version < FORMAT_VERSION:
            write_file(store.path / "zarr.json", checksummed_group({ROOT_KEY: FORMAT_VERSION}))
    return older


def _rewrite(episode: StoredEpisode) -> None:
    episode.check_undamaged()
    write_file(episode.path / "zarr.json", episode_metadata(episode.attributes, episode.entries))
