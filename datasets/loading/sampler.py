"""Order of the training windows: a pure function of seed and step, so that runs resume exactly."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Returns a permutation of `count` numbers that depends on the arguments only.

    It sorts raw bits of PCG64, a stream that numpy guarantees; `Generator.permutation` may change
    between versions.
    """
    return np.argsort(_bits(seed, epoch).random_raw(count), kind="stable").astype(np.int64)


def _bits(seed: int, epoch: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence([seed, epoch]))


class BatchSampler:
    """Infinite batches from concatenated epochs, each a new permutation of all windows.

    With weights, the count of a window in an epoch is its share of `count`, rounded up or down at
    random: systematic resampling, which varies less between epochs than independent draws.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, *, weights: ArrayLike | None = None
    ) -> None:
        """Prepares the draws.

        Args:
            count: Number of windows, at least 1.
            batch_size: Windows per batch, at least 1; it may exceed `count`.
            seed: 0 or more.
            weights: (count,) relative frequencies, 0 or more; by default all equal.
        """
        if count < 1 or batch_size < 1 or seed < 0:
            raise ValueError(
                f"count is {count}, batch_size {batch_size}, seed {seed}; allowed: 1 and above for "
                "count and batch_size, 0 and above for seed."
            )
        self.count = count
        self.batch_size = batch_size
        self.seed = seed
        self._edges = None if weights is None else _edges(np.asarray(weights, np.float64), count)
        self._epoch: tuple[int, NDArray[np.int64]] | None = None

    def batch(self, step: int) -> NDArray[np.int64]:
        """Returns the windows (batch_size,) of a training step."""
        if step < 0:
            raise ValueError(f"The step is {step}; allowed: 0 and above.")
        place = step * self.batch_size
        wanted = self.batch_size
        parts: list[NDArray[np.int64]] = []
        while wanted:
            epoch, first = divmod(place, self.count)
            parts.append(self._windows(epoch)[first : first + wanted])
            place = place + len(parts[-1])
            wanted = wanted - len(parts[-1])
        return np.concatenate(parts)

    def _windows(self, epoch: int) -> NDArray[np.int64]:
        """Returns the windows (count,) of an epoch, computed once per epoch.

        Several threads may ask at once, also for different epochs.
        """
        known = self._epoch
        if known is None or known[0] != epoch:
            places = order(self.seed, epoch, self.count)
            known = epoch, places if self._edges is None else self._resampled(epoch)[places]
            self._epoch = known
        return known[1]

    def _resampled(self, epoch: int) -> NDArray[np.int64]:
        assert self._edges is not None
        # `order` used the first `count` numbers of this stream; the next one is fresh.
        offset = int(_bits(self.seed, epoch).advance(self.count).random_raw()) / 2.0**64
        drawn = np.searchsorted(
            self._edges, (np.arange(self.count) + offset) / self.count, side="right"
        )
        return drawn.astype(np.int64)


def _edges(weights: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Returns the upper edges (count,) of the shares of the windows in [0, 1]."""
    if (
        weights.shape != (count,)
        or not np.isfinite(weights).all()
        or weights.min() < 0
        or not weights.any()
    ):
        raise ValueError(
            f"weights must be {count} finite numbers, 0 or above, not all 0; got shape "
            f"{weights.shape}."
        )
    edges: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    # Rounding must not push a draw past the last window with a weight.
    edges[np.flatnonzero(weights)[-1] :] = np.inf
    return edges


def equal_shares(weights: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
    """Scales weights (N,) of windows so that their sum is 1 in each group, such as a task.

    `groups` (N,) are the names of the groups of the windows. A group whose weights are all 0 stays
    without weight.
    """
    given = np.asarray(weights, np.float64)
    _, number = np.unique(np.asarray(groups), return_inverse=True)
    totals = np.bincount(number, given)
    return given / np.where(totals > 0, totals, 1.0)[number]


def favour_early(time_s: ArrayLike, first_s: float, factor: float) -> NDArray[np.float64]:
    """Returns weights (N,) of windows: `factor` in the first seconds of an episode, else 1.

    The few frames at the beginning, which show the positions of the objects, decide the outcome.
    `time_s` (N,) are seconds from the beginning of the episode, `first_s` is the duration of the
    beginning.
    """
    if not factor > 0:
        raise ValueError(f"factor is {factor}; it must be positive.")
    return np.where(np.asarray(time_s, np.float64) < first_s, factor, 1.0)
