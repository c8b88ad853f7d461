"""In which order windows are drawn: a pure function of seed and step, so that a resumed run continues exactly."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Returns a permutation of `count` numbers that depends on the arguments only.

    It sorts raw bits of PCG64, whose stream numpy promises to keep; `Generator.permutation` may
    change between versions.

    Raises:
        ValueError: A number is negative.
    """
    return np.argsort(_bits(seed, epoch).random_raw(count), kind="stable").astype(np.int64)


def _bits(seed: int, epoch: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence([seed, epoch]))


class BatchSampler:
    """Endless batches: epochs of all windows in a new order each, laid end to end.

    With weights, a window occurs in an epoch as often as its share of `count` asks, rounded up or
    down at random: systematic resampling, which varies less between epochs than independent draws.
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, *, weights: ArrayLike | None = None
    ) -> None:
        """Prepares the draws.

        Args:
            count: Number of windows, at least 1.
            batch_size: Windows per batch, at least 1; it may exceed `count`.
            seed: 0 or more.
            weights: (count,) relative frequencies, not negative, by default all equal.

        Raises:
            ValueError: A number is out of its range.
        """
        if count < 1 or batch_size < 1 or seed < 0:
            raise ValueError(
                f"count {count} and batch_size {batch_size} must be at least 1, seed {seed} at "
                f"least 0."
            )
        self.count = count
        self.batch_size = batch_size
        self.seed = seed
        self._edges = None if weights is None else _edges(np.asarray(weights, np.float64), count)
        self._epoch: tuple[int, NDArray[np.int64]] | None = None

    def batch(self, step: int) -> NDArray[np.int64]:
        """Returns the (batch_size,) windows of a training step, the same whenever and by whomever it is asked for.

        Raises:
            ValueError: The step is negative.
        """
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
        """Returns the (count,) windows of an epoch, computed once per epoch."""
        if self._epoch is None or self._epoch[0] != epoch:
            places = order(self.seed, epoch, self.count)
            self._epoch = epoch, places if self._edges is None else self._resampled(epoch)[places]
        return self._epoch[1]

    def _resampled(self, epoch: int) -> NDArray[np.int64]:
        assert self._edges is not None
        # `order` used the first `count` numbers of this stream; the next one is fresh.
        offset = int(_bits(self.seed, epoch).advance(self.count).random_raw()) / 2.0**64
        drawn = np.searchsorted(
            self._edges, (np.arange(self.count) + offset) / self.count, side="right"
        )
        return drawn.astype(np.int64)


def _edges(weights: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Returns the (count,) upper edges of the windows' shares of [0, 1]."""
    if (
        weights.shape != (count,)
        or not np.isfinite(weights).all()
        or weights.min() < 0
        or not weights.any()
    ):
        raise ValueError(
            f"weights must be {count} finite numbers, none negative, not all 0; got shape "
            f"{weights.shape}."
        )
    edges: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    edges[np.flatnonzero(weights)[-1] :] = (
        np.inf
    )  # Rounding must not push a draw past the last window that has a weight.
    return edges


def favour_early(time_s: ArrayLike, first_s: float, factor: float) -> NDArray[np.float64]:
    """Returns weights that draw the beginning of episodes more often.

    Where an episode begins with a search and ends with routine, the few frames that show where
    things are decide its outcome.

    Args:
        time_s: (N,) seconds from the beginning of its episode to each window.
        first_s: How long the beginning lasts.
        factor: How much more often a window in it is drawn; 1 changes nothing.

    Raises:
        ValueError: The factor is not positive.
    """
    if not factor > 0:
        raise ValueError(f"factor is {factor}; it must be positive.")
    return np.where(np.asarray(time_s, np.float64) < first_s, factor, 1.0)
