"""Batches of windows as tensors."""

from collections.abc import Generator, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.loading.mixture import MixedWindows
from stringline.datasets.loading.prefetch import Prefetcher
from stringline.datasets.loading.sampler import BatchSampler, equal_shares, favour_early
from stringline.datasets.loading.windows import Windows
from stringline.encoders.training.trainer import Trainer
from stringline.sim.training.training_settings import TrainingSettings

Indices = NDArray[np.int64]


class WindowBatches:
    """Batches of windows as tensors; a continued run gets the same batch at each step.

    Windows with keyposes are drawn equally often for each keypose: most frames of a recording
    belong to its long ways. Windows in the first `early_s` seconds of an episode are `early_factor`
    times as probable. With `equal_tasks`, windows of each task are drawn equally often; the weights
    of stores then apply among the windows of one task. `readers` threads read ahead, into
    page-locked memory with `pin_memory`.
    """

    def __init__(
        self,
        windows: Windows | MixedWindows,
        batch_size: int,
        *,
        seed: int,
        early_s: float = 0.0,
        early_factor: float = 1.0,
        equal_tasks: bool = False,
        readers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._windows = windows
        self._readers = readers
        self._pin_memory = pin_memory
        weights = favour_early(windows.step / windows.contract.control_hz, early_s, early_factor)
        weights = windows.balanced(weights) if isinstance(windows, MixedWindows) else weights
        if windows.group is not None:
            weights = equal_shares(weights, windows.group)
        if equal_tasks:
            weights = equal_shares(weights, np.asarray(windows.tasks)[windows.episode])
        self._sampler = BatchSampler(len(windows), batch_size, seed, weights=weights)

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Generator[Mapping[str, Tensor], None, None]:
        """Yields the batches of `first_step` to `last_step - 1`, which threads read ahead."""

        def read(step: int) -> dict[str, Tensor]:
            batch = tensors(self._windows, self._indices(step, process, processes))
            if not self._pin_memory:
                return batch
            return {key: value.pin_memory() for key, value in batch.items()}

        with Prefetcher(read, first_step, last_step, threads=self._readers) as batches:
            yield from batches

    def describe(self, step: int, process: int = 0, processes: int = 1) -> list[str]:
        """Returns the names of the windows of a batch."""
        windows = self._windows
        return [
            (
                f"window {index} (step {int(windows.step[index])} of "
                f"{windows.names[int(windows.episode[index])]})"
            )
            for index in self._indices(step, process, processes).tolist()
        ]

    def _indices(self, step: int, process: int, processes: int) -> Indices:
        return self._sampler.batch(step * processes + process)


class HeldOutBatches:
    """Batches of up to `count` evenly spaced held-out windows, the same in each call."""

    def __init__(self, windows: Windows | MixedWindows, batch_size: int, count: int) -> None:
        self._windows = windows
        self._chosen = np.unique(
            np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(np.int64)
        )
        self._batch_size = batch_size

    def __call__(self) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches."""
        for first in range(0, len(self._chosen), self._batch_size):
            yield tensors(self._windows, self._chosen[first : first + self._batch_size])


def tensors(windows: Windows | MixedWindows, indices: Indices) -> dict[str, Tensor]:
    """Reads windows as tensors."""
    return {key: torch.from_numpy(array) for key, array in windows.batch(indices).items()}


def training_batches(
    windows: Windows | MixedWindows, trainer: Trainer, settings: TrainingSettings
) -> WindowBatches:
    """Returns the batches of a training."""
    return WindowBatches(
        windows,
        trainer.batch_size,
        seed=trainer.seed,
        early_s=settings.early_s,
        early_factor=settings.early_factor,
        equal_tasks=settings.equal_tasks,
        readers=trainer.readers,
        pin_memory=trainer.pin_memory,
    )
