"""The interfaces of the training loop: model, data, callbacks and loggers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


class RunLogger(Protocol):
    """Receives the metrics of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of a step by name; a name such as `evaluation/success` has a group."""
        ...

    def close(self) -> None:
        """Writes everything that is buffered."""
        ...


LoggerFactory = Callable[..., RunLogger]
"""Makes a logger, given the run's `directory` and `first_step`, from which logs are replaced."""

Batch = Mapping[str, Tensor]
Probe = Callable[[nn.Module], Mapping[str, float]]
Validate = Callable[[nn.Module], float]
SaveModel = Callable[[nn.Module], None]
Prepare = Callable[[Batch, torch.Generator], Batch]
LossWeight = Callable[[Batch], Tensor]


class Batches(Protocol):
    """The batches of a run, determined by step and process alone, so that runs can continue."""

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Batch]:
        """Yields the batches of one process from `first_step` to before `last_step`."""
        ...


class BackgroundEvaluation(Protocol):
    """Evaluations in another process, of copies of the model, while the training goes on.

    An evaluation is known by the number of completed steps. It has begun from `start` to `discard`,
    also if the run is killed and continued in between.

    Attributes:
        begins: Whether new evaluations begin here; those that have begun end here in any case.
    """

    begins: bool

    def begun(self) -> Sequence[int]:
        """Returns the evaluations that have begun, in ascending order."""
        ...

    def start(self, done: int) -> None:
        """Copies the latest model, unless there is a copy, and evaluates the copy."""
        ...

    def has_ended(self, done: int) -> bool:
        """Returns whether the metrics are known."""
        ...

    def metrics(self, done: int) -> Mapping[str, float]:
        """Waits for the end of the evaluation and returns its metrics."""
        ...

    def keep_best(self, done: int) -> None:
        """Makes the copy the best model of the run."""
        ...

    def discard(self, done: int) -> None:
        """Removes the copy."""
        ...

    def close(self) -> None:
        """Ends what still runs; `start` continues it."""
        ...


@dataclass(frozen=True)
class Callbacks:
    """Functions that a run calls besides training; all are optional.

    Attributes:
        probe: Called with the averaged model every `probe_every` steps; returns metrics for the
            history.
        validate: Called at the same steps; returns the mean loss on held-out examples. The smaller,
            the better the model.
        evaluate: Called with the number of completed steps every `evaluate_every` steps, right
            after `keep` has stored the latest model; returns metrics for the history. Once it
            returns `success`, models are compared by it.
        background: Does the same in another process; its metrics enter the history when it ends. At
            the next evaluation and after the last step the run waits for it.
        keep: Stores a copy of the averaged model. Arguments: the model, `latest` (with every
            resumable state) or `best` (when better than all before, after its resumable state), and
            the number of completed steps. A continued run calls it again, since the run may have
            been killed before the first call.
        prepare: Changes each batch on the device before the loss, such as augmentation. Its
            generator, on the same device, depends on seed, step and process only.
        loss_weight: Returns the weight of the loss of a batch, a scalar, such as the number of
            elements that the loss is a mean over; if None, the number of examples. With it, parts
            of a batch and several processes give the gradients of the whole batch.
        describe: Returns the name of each example of a step, for messages. Arguments: step, process
            and number of processes.
        logger: Makes a logger besides the history.
    """

    probe: Probe | None = None
    validate: Validate | None = None
    evaluate: Callable[[int], Mapping[str, float]] | None = None
    background: BackgroundEvaluation | None = None
    keep: Callable[[nn.Module, str, int], None] | None = None
    prepare: Prepare | None = None
    loss_weight: LossWeight | None = None
    describe: Callable[[int, int, int], Sequence[str]] | None = None
    logger: LoggerFactory | None = None
