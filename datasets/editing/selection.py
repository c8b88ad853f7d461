"""New stores from the episodes of others: filter, merge, split. The others stay unchanged.

On the same disk arrays are hard links, so that nothing is copied.
"""

import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stringline.datasets.editing.completion import check_completes
from stringline.datasets.editing.edit import duration_s, take_over
from stringline.datasets.files.lock import exclusive
from stringline.datasets.loading.sampler import order
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore


@dataclass(frozen=True)
class Conditions:
    """The conditions of a filter; None accepts all episodes.

    Episodes with unknown success never meet a condition on `success`. In `task` and `source` `*`
    matches anything. Durations are in seconds.
    """

    success: bool | None = None
    task: str | None = None
    source: str | None = None
    shortest_s: float | None = None
    longest_s: float | None = None

    def fits(self, episode: StoredEpisode) -> bool:
        """Returns whether an episode meets the conditions."""
        attributes = episode.attributes
        if self.success is not None and attributes.success is not self.success:
            return False
        if not all(
            fnmatch.fnmatchcase(got, pattern or "*")
            for got, pattern in ((attributes.task, self.task), (attributes.source, self.source))
        ):
            return False
        if self.shortest_s is None and self.longest_s is None:
            return True
        return (
            (self.shortest_s or 0.0)
            <= duration_s(episode)
            <= (np.inf if self.longest_s is None else self.longest_s)
        )


def filter_store(store: EpisodeStore, output: Path, wanted: Conditions) -> EpisodeStore:
    """Creates or completes a store of the episodes that meet the conditions.

    Raises:
        ValueError: No episode meets them, or the output holds others.
    """
    kept = [episode for episode in store.episodes() if wanted.fits(episode)]
    if not kept:
        raise ValueError(f"None of the {len(store)} episodes in {store.path} meets {wanted}.")
    check_completes(output, [episode.name for episode in kept])
    return _collect(kept, output)


def merge(stores: Sequence[EpisodeStore], output: Path) -> EpisodeStore:
    """Creates or completes a store of the episodes of several stores with the same contract."""
    episodes = [episode for store in stores for episode in store.episodes()]
    if not episodes:
        raise ValueError(
            "There are no episodes to merge in: "
            f"{', '.join(str(store.path) for store in stores) or 'no stores'}."
        )
    first = episodes[0]
    for episode in episodes:
        if why := first.attributes.contract.differences(episode.attributes.contract):
            raise ValueError(f"{first.path} and {episode.path} cannot be merged. {' '.join(why)}")
    return _collect(episodes, output)


def split_store(
    store: EpisodeStore, outputs: Mapping[Path, float], *, seed: int = 0
) -> list[EpisodeStore]:
    """Splits the episodes of a store randomly into new stores.

    `outputs` are the shares of the new stores, with the sum 1; `seed` determines the order.
    Interrupted commands are continued.

    Raises:
        ValueError: Shares are wrong, or an output holds episodes that belong into another one.
    """
    shares = np.array(list(outputs.values()), np.float64)
    if not len(shares) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"The shares are {list(outputs.values())}; allowed: positive numbers with the sum 1."
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
        check_completes(path, [episodes[place].name for place in chosen])
    return [
        _collect([episodes[place] for place in chosen], path)
        for path, chosen in zip(outputs, dealt, strict=True)
    ]


def _collect(episodes: Sequence[StoredEpisode], path: Path) -> EpisodeStore:
    """Adds episodes under their names to a store, except those that it has already.

    Its own episodes are among them if it is one of the merged stores. They are not added: another
    command may have removed them since they were listed.
    """
    store = EpisodeStore.create(path)
    with exclusive(store.path):
        store.remove_leftovers()
        there = set(store.names())
        for episode in episodes:
            own = episode.path.parent.resolve() == store.path.resolve()
            if not own and episode.name not in there:
                take_over(episode, store.path, episode.name, episode.attributes)
                there.add(episode.name)  # Several stores may contain the episode.
    return store
