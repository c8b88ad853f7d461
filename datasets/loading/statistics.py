"""Ranges, means and quantiles of the small arrays of a store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.store.episode import StoredEpisode

Floats = NDArray[np.float64]
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
BINS = 4096
INSTRUCTIONS = "instructions"
GRIPPER_POSITIONS = "gripper/position"
"""Positions of the grippers of all arms in the base frame, m: (3,)."""
KEYS = ("action", "joints/position", "joints/velocity", "joints/effort")
_ARRAYS = ("min", "max", "mean", "std", "quantiles")


@dataclass(frozen=True)
class KeyStatistics:
    """Statistics of one key in the units of the contract: arrays (D,).

    Attributes:
        count: Number of rows.
        std: Population standard deviations.
        quantiles: (5, D) at `QUANTILES`, accurate to 1/4096 of the range of each dimension.
    """

    count: int
    min: Floats
    max: Floats
    mean: Floats
    std: Floats
    quantiles: Floats

    def to_dict(self) -> dict[str, Any]:
        """Returns the statistics as plain lists and numbers."""
        return {"count": self.count, **{name: getattr(self, name).tolist() for name in _ARRAYS}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds statistics from the result of `to_dict`."""
        arrays = {name: np.asarray(plain[name], np.float64) for name in _ARRAYS}
        return cls(count=int(plain["count"]), **arrays)


class Statistics(Mapping[str, KeyStatistics]):
    """The statistics of a data set by key.

    Attributes:
        instructions: The distinct instructions of the episodes, sorted.
    """

    def __init__(
        self, by_key: Mapping[str, KeyStatistics], *, instructions: Sequence[str] = ()
    ) -> None:
        self._by_key = dict(by_key)
        self.instructions = tuple(instructions)

    def __getitem__(self, key: str) -> KeyStatistics:
        """Returns the statistics of a key; raises KeyError with the nearest keys."""
        if key not in self._by_key:
            raise KeyError(str(unknown_name("key with statistics", key, self._by_key)))
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def to_dict(self) -> dict[str, Any]:
        """Returns the statistics as plain lists, numbers and texts for JSON."""
        plain: dict[str, Any] = {key: statistics.to_dict() for key, statistics in self.items()}
        return plain | ({INSTRUCTIONS: list(self.instructions)} if self.instructions else {})

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds statistics from the result of `to_dict`."""
        try:
            by_key = {
                key: KeyStatistics.from_dict(fields)
                for key, fields in plain.items()
                if key != INSTRUCTIONS
            }
            return cls(by_key, instructions=plain.get(INSTRUCTIONS, ()))
        except (KeyError, TypeError) as error:
            raise ValueError(f"The statistics are invalid: {error!r}.") from error

    @classmethod
    def of_episodes(
        cls, episodes: Sequence[StoredEpisode], *, others: Sequence[StoredEpisode] = ()
    ) -> Self:
        """Computes the statistics of at least one episode in two passes over its `KEYS`.

        Keys that an episode lacks are omitted. Of `others` the instructions alone are included.
        """
        shared = [key for key in KEYS if all(key in episode.entries for episode in episodes)]
        texts = {episode.attributes.instruction for episode in (*episodes, *others)} - {""}
        by_key = {key: statistics_of(partial(_parts, episodes, key)) for key in shared}
        if all(episode.attributes.contract.arms for episode in episodes):
            by_key[GRIPPER_POSITIONS] = gripper_statistics(episodes)
        return cls(by_key, instructions=sorted(texts))


def _parts(episodes: Sequence[StoredEpisode], key: str) -> Iterator[NDArray[Any]]:
    return (episode.arrays[key] for episode in episodes)


def gripper_statistics(episodes: Sequence[StoredEpisode]) -> KeyStatistics:
    """Computes the statistics of the positions of all grippers in the base frame, m."""
    return statistics_of(lambda: map(_gripper_positions, episodes))


def _gripper_positions(episode: StoredEpisode) -> NDArray[Any]:
    """Returns the measured positions (T arms, 3) of the grippers of an episode."""
    arms = episode.attributes.contract.arms
    poses = [np.asarray(episode.arrays[f"T_base_gripper/{arm}"]) for arm in arms]
    return np.concatenate(poses)[:, :3, 3]


def statistics_of(parts: Callable[[], Iterator[NDArray[Any]]]) -> KeyStatistics:
    """Computes the statistics of arrays (n, D) in two passes and constant memory.

    The first pass merges means and squared deviations of the parts (Chan, Golub, LeVeque, 1983,
    equation 2.1), the second counts values in bins between the smallest and the largest one.
    `parts` yields the arrays; it is called twice.
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
