"""Sampling for training: held-out episodes, order of the windows, and batches in the background.

The order of the windows is a pure function of seed and step, so that runs resume exactly. Held out
of training are the episodes of a store's validation split, or the last ones. An import marks the
episodes of a data set that has splits, such as the masks of robomimic.
"""

import itertools
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import COUNT, printable
from stringline.datasets.store.episode import EpisodeAttributes, task_names
from stringline.datasets.store.store import EpisodeStore

SPLIT = "split"
"""Attribute `extra` of an episode: `TRAINING` or `VALIDATION`."""
TRAINING = "train"
VALIDATION = "validation"
SINGLE = "instructions of a single episode"
MOST_SHOWN = 8
_log = logging.getLogger(__name__)


def split_names(
    store: EpisodeStore, names: Sequence[str], held_out: int
) -> tuple[list[str], list[str]]:
    """Divides episodes of a store, which may be removed ones, into training and held-out ones.

    Held out are the episodes that are marked for validation. Without such marks, `held_out` is the
    number of episodes that are held out, at most a fifth of the store: the last ones of each task
    (see `task_names`), in proportion to its episodes. With 0, no episode is held out. Instructions
    that a single episode has form one group. The log has the groups.

    Raises:
        ValueError: All episodes are marked for validation.
    """
    if not held_out:
        return list(names), []
    attributes = {name: store.episode(name, removed=True).attributes for name in names}
    marked = [name for name in names if attributes[name].extra.get(SPLIT) == VALIDATION]
    if not marked:
        groups = _groups(names, [attributes[name] for name in names])
        last = _last_of_each(list(groups.values()), min(held_out, len(names) // 5))
        if len(groups) > 1:
            kept = {task: len({*own} - last) for task, own in groups.items()}
            held = {task: len({*own} & last) for task, own in groups.items()}
            _log.info("%s: training episodes: %s.", store.path, named_counts(kept))
            _log.info("%s: held-out episodes: %s.", store.path, named_counts(held))
        return [name for name in names if name not in last], [n for n in names if n in last]
    if len(marked) == len(names):
        raise ValueError(
            f"All {len(names)} episodes of {store.path} are marked for validation. To train on "
            "them, set held_out=0."
        )
    _log.info("%s: the %d episodes marked for validation are held out.", store.path, len(marked))
    return [name for name in names if name not in set(marked)], marked


def _groups(names: Sequence[str], attributes: Sequence[EpisodeAttributes]) -> dict[str, list[str]]:
    """Returns the names of the episodes of each task, or instruction.

    A group of one episode has none to hold out; instructions that differ in each episode describe a
    task that none of them repeats.
    """
    tasks = task_names(attributes)
    by_instruction = len({each.task for each in attributes}) == 1
    count = Counter(tasks)
    found: dict[str, list[str]] = {}
    for name, task in zip(names, tasks, strict=True):
        found.setdefault(SINGLE if by_instruction and count[task] == 1 else task, []).append(name)
    return found


def named_counts(episodes: Mapping[str, int]) -> str:
    """Returns numbers of episodes by task in words, for the largest ones."""
    largest = sorted(episodes, key=lambda task: -episodes[task])
    others = largest[MOST_SHOWN:]
    shown = [f"{episodes[task]} of {printable(task)!r}" for task in largest[:MOST_SHOWN]]
    rest = sum(episodes[task] for task in others)
    return ", ".join([*shown, *([f"{rest} of {len(others)} more"] if others else [])])


def _last_of_each(groups: Sequence[Sequence[str]], count: int) -> set[str]:
    """Returns `count` names, the last of each group in proportion to their numbers.

    A group keeps four of five names, or all but one of fewer.
    """
    total = sum(map(len, groups))
    most = [min(max(len(group) // 5, 1), len(group) - 1) for group in groups]
    taken = [0] * len(groups)
    for _ in range(min(count, sum(most))):
        open_groups = [index for index in range(len(groups)) if taken[index] < most[index]]
        lacking = [len(groups[index]) * count / total - taken[index] for index in open_groups]
        taken[open_groups[lacking.index(max(lacking))]] += 1
    return {
        name
        for group, number in zip(groups, taken, strict=True)
        for name in group[len(group) - number :]
    }


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


def oversampling_weights(time_s: ArrayLike, first_s: float, factor: float) -> NDArray[np.float64]:
    """Returns weights (N,) of windows: `factor` in the first seconds of an episode, else 1.

    The few frames at the beginning, which show the positions of the objects, decide the outcome.
    `time_s` (N,) are seconds from the beginning of the episode, `first_s` is the duration of the
    beginning.
    """
    if not factor > 0:
        raise ValueError(f"factor is {factor}; it must be positive.")
    return np.where(np.asarray(time_s, np.float64) < first_s, factor, 1.0)


T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls `make(0), make(1), ...` ahead in threads and yields the results in order.

    Copies out of memory maps release the interpreter lock, so threads suffice; one is enough unless
    a GPU trains faster than it copies. Leaving the `with` block stops the threads. Iteration raises
    the errors of `make`.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        start: int = 0,
        stop: int | None = None,
        *,
        depth: int = 2,
        threads: int = 1,
    ) -> None:
        """Starts the threads.

        The steps go from `start` to before `stop`, or on for ever. Thread n of N makes every N-th
        step from `start + n` on; at most `depth` results of each thread wait.
        """
        COUNT.check(depth=depth, threads=threads)
        self._make = make
        self._stop = stop
        self._stopped = threading.Event()
        self._ready: list[queue.Queue[tuple[T] | BaseException | None]] = [
            queue.Queue(depth) for _ in range(threads)
        ]
        self._threads = [
            threading.Thread(
                target=self._run, args=(start + number, ready), name="prefetch", daemon=True
            )
            for number, ready in enumerate(self._ready)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, step: int, ready: "queue.Queue[tuple[T] | BaseException | None]") -> None:
        try:
            while (self._stop is None or step < self._stop) and not self._stopped.is_set():
                self._put(ready, (self._make(step),))
                step += len(self._ready)
            self._put(ready, None)
        except BaseException as error:  # `__iter__` raises it in the thread of the consumer.
            self._put(ready, error)

    def _put(
        self,
        ready: "queue.Queue[tuple[T] | BaseException | None]",
        item: tuple[T] | BaseException | None,
    ) -> None:
        while not self._stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def __iter__(self) -> Iterator[T]:
        for ready in itertools.cycle(self._ready):
            item = self._next(ready)
            if isinstance(item, tuple):
                yield item[0]
                continue
            self.close()
            if item is not None:
                raise item
            return

    def _next(
        self, ready: "queue.Queue[tuple[T] | BaseException | None]"
    ) -> tuple[T] | BaseException | None:
        """Returns the next item of a thread; None after the last one, and if all are stopped."""
        while not self._stopped.is_set():
            try:
                return ready.get(timeout=0.1)
            except queue.Empty:
                continue
        return None

    def close(self) -> None:
        """Stops the threads after their current step."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
