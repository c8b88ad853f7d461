"""Training batches of labelled images."""

from collections.abc import Generator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.loading.prefetch import Prefetcher
from stringline.datasets.loading.sampler import BatchSampler
from stringline.encoders.perception.perception_network import (
    LabelledImages,
    PerceptionNetwork,
    stack,
)


class ImageBatches:
    """Batches of chosen images of a store; a continued run gets the same batch at each step.

    `readers` threads read ahead, into page-locked memory with `pin_memory`.
    """

    def __init__(
        self,
        images: LabelledImages,
        indices: Sequence[int],
        network: PerceptionNetwork,
        batch_size: int,
        *,
        seed: int,
        readers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._images = images
        self._indices = np.asarray(indices, np.int64)
        self._network = network
        self._seed = seed
        self._readers = readers
        self._pin_memory = pin_memory
        self._sampler = BatchSampler(len(self._indices), batch_size, seed)

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Generator[Mapping[str, Tensor], None, None]:
        """Yields the batches of `first_step` to `last_step - 1`, which threads read ahead."""

        def read(step: int) -> dict[str, Tensor]:
            batch = self.batch(step * processes + process)
            if not self._pin_memory:
                return batch
            return {key: value.pin_memory() for key, value in batch.items()}

        with Prefetcher(read, first_step, last_step, threads=self._readers) as batches:
            yield from batches

    def batch(self, number: int) -> dict[str, Tensor]:
        """Returns a batch; its draws depend on seed and number only."""
        generator = np.random.default_rng([self._seed, number])
        chosen = self._chosen(number)
        return stack(
            [self._network.example(self._images[int(index)], generator) for index in chosen]
        )

    def describe(self, step: int, process: int = 0, processes: int = 1) -> list[str]:
        """Returns the names of the images of a batch."""
        return [f"image {index}" for index in self._chosen(step * processes + process).tolist()]

    def _chosen(self, number: int) -> NDArray[np.int64]:
        return self._indices[self._sampler.batch(number)]
