"""New stores of the episodes of others: filter, merge, split. The others stay as they are.

On one disk nothing is copied: an array gets a second name, and its bytes are freed when the last
name is gone.
"""

import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.editing.edit import duration_s, take_over
from stringline.datasets.files.lock import exclusive
from stringline.datasets.loading.sampler import order
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore


@dataclass(frozen=True)
class Wanted:
    """Which episodes a filter keeps; what is None does not matter.

    Attributes:
        success: Whether the task was achieved; episodes that nobody judged fit neither.
        task: Its name; `*` stands for anything.
        source: Who acted; `*` stands for anything.
        shortest_s: Least duration.
        longest_s: Greatest duration.
    """

    success: bool | None = None
    task: str | None = None
    source: str | None = None
    shortest_s: float | None = None
    longest_s: float | None = None

    def fits(self, episode: StoredEpisode) -> bool:
        """Says whether an episode is kept."""
        attributes = episode.attributes
        if self.success is not None and attributes.success is not self.success:
            return False
        if not all(
            fnmatch.fnmatchcase(got, asked or "*")
            for got, asked in ((attributes.task, self.task), (attributes.source, self.source))
        ):
            return False
        if self.shortest_s is None and self.longest_s is None:
            return True
        return (
            (self.shortest_s or 0.0)
            <= duration_s(episode)
            <= (np.inf if self.longest_s is None else self.longest_s)
        )


def filter_store(store: EpisodeStore, output: Path, wanted: Wanted) -> EpisodeStore:
    """Makes a store of the episodes that are wanted, or completes it; nothing is copied on the same disk.

    Raises:
        ValueError: No episode is wanted.
    """
    kept = [episode for episode in store.episodes() if wanted.fits(episode)]
    if not kept:
        raise ValueError(f"None of the {len(store)} episodes in {store.path} fits {wanted}.")
    return _collect(kept, output)


def merge(stores: Sequence[EpisodeStore], output: Path) -> EpisodeStore:
    """Makes a store of the episodes of several, or completes it; nothing is copied on the same disk.

    Raises:
        ValueError: Their contracts differ; the message says in what.
    """
    episodes = [episode for store in stores for episode in store.episodes()]
    if not episodes:
        raise ValueError(
            f"There is no episode in "
            f"{', '.join(str(store.path) for store in stores) or 'no store at all'}."
        )
    first = episodes[0]
    for episode in episodes:
        _require_same(first, episode)
    return _collect(episodes, output)


def split_store(
    store: EpisodeStore, outputs: Mapping[Path, float], *, seed: int = 0
) -> list[EpisodeStore]:
    """Divides the episodes of a store at random among new stores; nothing is copied on the same disk.

    Args:
        store: The data; it stays as it is.
        outputs: The share of each new store; together 1.
        seed: Of the order in which episodes are dealt.

    Raises:
        ValueError: The shares are not all positive or do not add up to 1, or one is too small to
            get an episode.
    """
    shares = np.array(list(outputs.values()), np.float64)
    if not len(shares) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"The shares are {list(outputs.values())}; allowed: positive ones that add up to 1."
        )
    episodes = store.episodes()
    edges = [0, *np.rint(np.cumsum(shares) * len(episodes)).astype(int).tolist()]
    places = order(seed, 0, len(episodes)).tolist()
    dealt = [sorted(places[start:stop]) for start, stop in itertools.pairwise(edges)]
    for path, chosen in zip(outputs, dealt, strict=True):
        if not chosen:
            raise ValueError(
                f"A share of {outputs[path]} of {len(episodes)} episodes leaves none for {path}."
            )
    return [
        _collect([episodes[place] for place in chosen], path)
        for path, chosen in zip(outputs, dealt, strict=True)
    ]


def _collect(episodes: Sequence[StoredEpisode], path: Path) -> EpisodeStore:
    """Gives episodes a place in another store, under their names; what is there already stays."""
    store = EpisodeStore.create(path)
    with exclusive(store.path):
        store.remove_leftovers()
        there = set(store.names())
        for episode in episodes:
            if episode.name not in there:
                take_over(episode, store.path, episode.name, episode.attributes)
                there.add(episode.name)  # It may be in several of the stores.
    return store


def _require_same(first: StoredEpisode, episode: StoredEpisode) -> None:
    wanted = first.attributes.contract
    offered = episode.attributes.contract
    if wanted != offered:
        raise ValueError(
            f"{first.path} and {episode.path} cannot be merged. "
            f"{' '.join(_differences(wanted, offered))}"
        )


def _differences(wanted: Contract, offered: Contract) -> list[str]:
    pairs = zip(wanted.cameras, offered.cameras, strict=False)
    cameras = [f"{one} and {other}." for one, other in pairs if one != other]
    return (
        wanted.misfits(offered)
        or cameras
        or [f"There are {len(wanted.cameras)} and {len(offered.cameras)} cameras."]
    )
