"""The interfaces of the training loop: model, data, callbacks and loggers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn


class RunLogger(Protocol):
    """Takes figures as they come."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the figures of a step, by name; names such as `evaluation/success` are groups."""
        ...

    def close(self) -> None:
        """Writes what is not yet written."""
        ...


class LoggerFactory(Protocol):
    """Makes a logger for a run."""

    def __call__(self, *, directory: Path, first_step: int) -> RunLogger:
        """Returns it.

        Args:
            directory: Of the run.
            first_step: The first one that is still to do: what was logged from there on is
                replaced.
        """
        ...


Batch = Mapping[str, Tensor]
Probe = Callable[[nn.Module], Mapping[str, float]]
Validate = Callable[[nn.Module], float]
SaveModel = Callable[[nn.Module], None]
Prepare = Callable[[Batch, torch.Generator], Batch]
Weigh = Callable[[Batch], Tensor]


class Batches(Protocol):
    """Gives the batches of a run; what a process sees in step n depends on both alone, so a continued run sees the same."""

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Batch]:
        """Yields the batches of steps first_step (included) to last_step (excluded) for one of several processes."""
        ...


@dataclass(frozen=True)
class Asides:
    """What a run does besides training; everything may be left away.

    Attributes:
        probe: Called with the averaged model every `probe_every` steps; what it returns goes into
            the history.
        validate: The same for the mean loss on examples that are not trained on; the smaller, the
            better the model.
        evaluate: Called with the number of steps done every `evaluate_every` steps, when `keep` has
            just kept the latest model. What it returns goes into the history; `success` is what
            models are compared by from then on.
        keep: Keeps a copy of the averaged model: `latest` with every resumable state, `best` when
            it is better than all before, once there is a resumable state of it. It is called with
            the model, that name, and the number of steps done; when a run goes on it is called
            again, since nobody knows whether it was killed before.
        prepare: Changes each batch on the device before the loss, such as augmentation; its
            generator is on the device too and depends on seed, step and process only.
        weigh: Says how much the loss of a batch counts against that of others, a scalar, such as
            the number of things that it is a mean of; None: as many as there are examples. It makes
            parts of a batch, and processes, equal the whole.
        describe: Names each example of a step, for messages; called with the step, the process and
            their number.
        logger: Where figures go, besides the history.
    """

    probe: Probe | None = None
    validate: Validate | None = None
    evaluate: Callable[[int], Mapping[str, float]] | None = None
    keep: Callable[[nn.Module, str, int], None] | None = None
    prepare: Prepare | None = None
    weigh: Weigh | None = None
    describe: Callable[[int, int, int], Sequence[str]] | None = None
    logger: LoggerFactory | None = None
