"""Ranges, means and quantiles of the small arrays of a store, for normalisation and for looking at data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

Floats = NDArray[np.float64]
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
BINS = 4096
INSTRUCTIONS = "instructions"
KEYS = ("action", "joints/position", "joints/velocity", "joints/effort")


@dataclass(frozen=True)
class KeyStatistics:
    """Numbers of one key, per dimension, in the units of the contract.

    Attributes:
        count: Rows seen.
        min: (D,) smallest values.
        max: (D,) largest values.
        mean: (D,) means.
        std: (D,) standard deviations of the population.
        quantiles: (5, D) at `QUANTILES`, each within a 4096th of the range of its dimension.
    """

    count: int
    min: Floats
    max: Floats
    mean: Floats
    std: Floats
    quantiles: Floats

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists and numbers."""
        arrays = {
            name: getattr(self, name).tolist()
            for name in ("min", "max", "mean", "std", "quantiles")
        }
        return {"count": self.count, **arrays}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds what `to_dict` wrote."""
        arrays = {
            name: np.asarray(plain[name], np.float64)
            for name in ("min", "max", "mean", "std", "quantiles")
        }
        return cls(count=int(plain["count"]), **arrays)


class Statistics(Mapping[str, KeyStatistics]):
    """The statistics of a data set by key.

    Attributes:
        instructions: What its episodes ask for, each text once, in order.
    """

    def __init__(
        self,
        by_key: Mapping[str, KeyStatistics],
        *,
        instructions: Sequence[str] = (),
        episodes: Sequence[StoredEpisode] = (),
    ) -> None:
        """Keeps what was computed; `of_store` computes.

        Args:
            by_key: The numbers.
            instructions: See the class.
            episodes: Those that more can be measured on, see `measured`; they are not written.
        """
        self._by_key = dict(by_key)
        self.instructions = tuple(instructions)
        self._episodes = tuple(episodes)

    def __getitem__(self, key: str) -> KeyStatistics:
        """Returns the statistics of a key.

        Raises:
            KeyError: There are none; the message names those there are.
        """
        if key not in self._by_key:
            raise KeyError(str(unknown_name("key with statistics", key, self._by_key)))
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        """Yields the keys."""
        return iter(self._by_key)

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._by_key)

    def measured(self, key: str, rows: Callable[[StoredEpisode], NDArray[Any]]) -> Self:
        """Returns the same with statistics of something that is computed from episodes, such as actions in other coordinates.

        Where they are known already, as in a checkpoint, nothing is measured.

        Args:
            key: Under which they are found and written.
            rows: Computes (n, D) of an episode; called twice for each.

        Raises:
            ValueError: They are not known and there are no episodes to measure them on.
        """
        if key in self._by_key:
            return self
        if not self._episodes:
            raise ValueError(
                f"There are no statistics of {key!r}, and no episodes to measure them on. Known: "
                f"{', '.join(self._by_key)}."
            )
        found = statistics_of(lambda: (rows(episode) for episode in self._episodes))
        return type(self)(
            {**self._by_key, key: found}, instructions=self.instructions, episodes=self._episodes
        )

    def without_episodes(self) -> Self:
        """Returns the numbers alone, which cannot measure any more."""
        return type(self)(self._by_key, instructions=self.instructions)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists, numbers and texts, fit for JSON; see `without_episodes`."""
        plain: dict[str, Any] = {key: statistics.to_dict() for key, statistics in self.items()}
        return plain | ({INSTRUCTIONS: list(self.instructions)} if self.instructions else {})

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds what `to_dict` wrote.

        Raises:
            ValueError: A field is missing.
        """
        try:
            by_key = {
                key: KeyStatistics.from_dict(fields)
                for key, fields in plain.items()
                if key != INSTRUCTIONS
            }
            return cls(by_key, instructions=plain.get(INSTRUCTIONS, ()))
        except (KeyError, TypeError) as error:
            raise ValueError(f"These are no statistics: {error!r}.") from error

    @classmethod
    def of_store(
        cls, store: EpisodeStore, names: Sequence[str] | None = None, keys: Sequence[str] = KEYS
    ) -> Self:
        """Reads the arrays of a store twice, one episode at a time.

        Args:
            store: The data.
            names: Episodes to use, by default all.
            keys: What to look at; keys that not every episode has are left out.

        Raises:
            ValueError: There are no episodes.
        """
        episodes = [store.episode(name) for name in (store.names() if names is None else names)]
        if not episodes:
            raise ValueError(f"There are no episodes in {store.path} to compute statistics from.")
        return cls.of_episodes(episodes, keys)

    @classmethod
    def of_episodes(
        cls,
        episodes: Sequence[StoredEpisode],
        keys: Sequence[str] = KEYS,
        *,
        others: Sequence[StoredEpisode] = (),
    ) -> Self:
        """Reads the arrays of episodes, of one store or of several, twice, one episode at a time.

        Args:
            episodes: At least one.
            keys: What to look at; keys that not every episode has are left out.
            others: Episodes that no numbers are computed from, but whose instructions are to be
                known too.
        """
        shared = [key for key in keys if all(key in episode.entries for episode in episodes)]
        texts = {episode.attributes.instruction for episode in (*episodes, *others)} - {""}
        by_key = {key: statistics_of(partial(_parts, episodes, key)) for key in shared}
        return cls(by_key, instructions=sorted(texts), episodes=episodes)


def _parts(episodes: Sequence[StoredEpisode], key: str) -> Iterator[NDArray[Any]]:
    return (episode.arrays[key] for episode in episodes)


def statistics_of(parts: Callable[[], Iterator[NDArray[Any]]]) -> KeyStatistics:
    """Computes statistics in two passes and constant memory.

    The first pass merges means and squared deviations of the parts (Chan, Golub, LeVeque, 1983,
    equation 2.1), the second counts values in bins between the smallest and the largest one.

    Args:
        parts: Starts a pass over arrays (n, D).

    Raises:
        ValueError: There are no rows.
    """
    count = 0
    low, high, mean, squares = (np.full(1, value) for value in (np.inf, -np.inf, 0.0, 0.0))
    for part in parts():
        rows = np.asarray(part, np.float64)
        if not len(rows):
            continue
        low = np.minimum(low, rows.min(0))
        high = np.maximum(high, rows.max(0))
        shift = rows.mean(0) - mean
        total = count + len(rows)
        squares = (
            squares + ((rows - rows.mean(0)) ** 2).sum(0) + shift**2 * (count * len(rows) / total)
        )
        mean = mean + shift * (len(rows) / total)
        count = total
    if not count:
        raise ValueError("There are no rows to compute statistics from.")
    return KeyStatistics(
        count, low, high, mean, np.sqrt(squares / count), _quantiles(parts(), low, high, count)
    )


def _quantiles(parts: Iterator[NDArray[Any]], low: Floats, high: Floats, count: int) -> Floats:
    width = np.where(high > low, high - low, 1.0) / BINS
    counts = np.zeros((BINS, len(low)), np.int64)
    for part in parts:
        bins = np.clip((np.asarray(part, np.float64) - low) / width, 0, BINS - 1).astype(np.int64)
        for dimension in range(len(low)):
            counts[:, dimension] += np.bincount(bins[:, dimension], minlength=BINS)
    cumulative = np.cumsum(counts, axis=0)
    ranks = np.array(QUANTILES)[:, None, None] * (count - 1) + 1
    found = (cumulative[None] < ranks).sum(axis=1)
    return np.asarray(np.clip(low + (found + 0.5) * width, low, high))
