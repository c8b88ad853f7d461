"""A least-recently-used cache of memory-mapped arrays."""

import resource
import threading
from collections import OrderedDict
from collections.abc import Sequence

from stringline.datasets.contract.contract import Array
from stringline.datasets.store.episode import StoredEpisode

FILES_FOR_OTHERS = 256


class MmapCache:
    """Maps arrays of many episodes and keeps the most recently used ones; it is thread-safe.

    Every map holds one open file. If the soft limit of the process on open files is below the
    capacity, the limit is raised as far as possible, and the capacity is reduced to it.
    """

    def __init__(self, episodes: Sequence[StoredEpisode], capacity: int = 4096) -> None:
        """Creates an empty cache of at most `capacity` maps; `array` indexes the episodes."""
        self._episodes = episodes
        self.capacity = max(1, min(capacity, _allowed_files(capacity)))
        self._maps: OrderedDict[tuple[int, str], Array] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._maps)

    def array(self, episode: int, key: str) -> Array:
        """Returns a memory-mapped array of an episode."""
        with self._lock:
            if (found := self._maps.get((episode, key))) is not None:
                self._maps.move_to_end((episode, key))
                return found
            mapped = self._maps[episode, key] = self._episodes[episode].arrays[key]
            if len(self._maps) > self.capacity:
                self._maps.popitem(last=False)
            return mapped


def _allowed_files(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted + FILES_FOR_OTHERS:
        soft = (
            wanted + FILES_FOR_OTHERS if hard == unlimited else min(hard, wanted + FILES_FOR_OTHERS)
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else soft - FILES_FOR_OTHERS
