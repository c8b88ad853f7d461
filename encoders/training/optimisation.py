"""Optimisation: gradients, learning rate, parameter groups and moving average of the weights.

Parts of a model have names: `observation_encoder`, `denoiser.blocks.0`, or with wildcards.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.training.interfaces import Batch, LossWeight

# Levels of parts that an error message searches for the nearest names; deeper parts match too.
PART_LEVELS = 2


class PartPatterns:
    """Patterns of names of parts, each for the part and everything in it.

    A pattern is the name of a module or parameter, in which `*` stands for any characters, dots
    included: `denoiser`, `denoiser.blocks.*.cross_q`, `*.bias`.
    """

    def __init__(self, setting: str, patterns: Sequence[str], model: nn.Module) -> None:
        """Checks the patterns; `setting` is the option that contains them, for messages.

        Raises:
            ValueError: A pattern matches no parameter of the model.
        """
        self._patterns = [str(pattern) for pattern in patterns]
        names = [name for name, _ in model.named_parameters()]
        for pattern in self._patterns:
            if not any(_within(name, pattern) for name in names):
                raise unknown_name(f"part of the model for {setting}", pattern, part_names(names))

    def index(self, name: str) -> int | None:
        """Returns the number of the last pattern that matches a name; None if no pattern does."""
        found = [number for number, pattern in enumerate(self._patterns) if _within(name, pattern)]
        return found[-1] if found else None

    def __contains__(self, name: str) -> bool:
        return self.index(name) is not None


def part_names(names: Iterable[str], depth: int = PART_LEVELS) -> set[str]:
    """Returns the names of the first levels of parts that contain the named tensors."""
    return {".".join(name.split(".")[:level]) for name in names for level in range(1, depth + 1)}


def _within(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


FACTOR = "learning_rate_factor"
"""Key of a parameter group: the factor of its learning rate."""


class LossModule(nn.Module):
    """Makes the loss of a module its forward pass, as Accelerate and compilation require."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """Returns the loss of the model."""
        # nn.Module types every attribute as Tensor | Module.
        loss: Tensor = self.model.loss(batch)  # type: ignore[operator]
        return loss


def split(batch: Batch, parts: int) -> list[Batch]:
    """Splits a batch into parts of nearly equal size; fewer parts if it has fewer examples."""
    count = examples(batch)
    if parts == 1 or count < 2:
        return [batch]
    pieces = {key: value.tensor_split(min(parts, count)) for key, value in batch.items()}
    return [
        {key: piece[number] for key, piece in pieces.items()} for number in range(min(parts, count))
    ]


def examples(batch: Batch) -> int:
    """Returns the number of examples, the length of the first axis of every tensor."""
    return len(next(iter(batch.values())))


def accumulate(
    accelerator: Accelerator,
    prepared: nn.Module,
    parts: Sequence[Batch],
    *,
    bf16: bool,
    loss_weight: LossWeight | None,
) -> Tensor:
    """Accumulates the gradients of a batch given in parts, over all processes.

    A loss is a mean. The loss of the whole batch is the mean of the losses of its parts, weighted
    by the number of elements that each part is a mean over (`loss_weight`, see `Callbacks`).
    `prepared` is a `LossModule` as the accelerator wrapped it, without gradients. Returns the loss
    of this process's part of the batch, a float64 scalar on the device, which is not waited for.
    """
    shares = _shares(accelerator, parts, loss_weight)
    losses: list[Tensor] = []
    for number, (part, (within, overall)) in enumerate(zip(parts, shares, strict=True)):
        # Only the backward pass of the last part exchanges gradients.
        last = number == len(parts) - 1
        with nullcontext() if last else accelerator.no_sync(prepared):
            with torch.autocast(accelerator.device.type, torch.bfloat16, enabled=bf16):
                loss: Tensor = prepared(part)
            accelerator.backward(loss if overall is None else loss * overall)
        losses.append(loss.detach().double() * within)
    return sum(losses[1:], start=losses[0])


def _shares(
    accelerator: Accelerator, parts: Sequence[Batch], loss_weight: LossWeight | None
) -> list[tuple[Tensor | float, Tensor | None]]:
    """Returns each part's share in this process's loss, and its gradient's factor (if None, 1)."""
    if len(parts) == 1 and (loss_weight is None or accelerator.num_processes == 1):
        return [(1.0, None)]
    own = torch.stack(
        [
            loss_weight(part).float()
            if loss_weight
            # Filled on the device: a copy from the host would wait for it.
            else torch.full((), float(examples(part)), device=accelerator.device)
            for part in parts
        ]
    )
    # Data parallelism averages the gradients of the processes, so the common denominator is a mean.
    mean: Tensor = (
        accelerator.reduce(own.sum(), "mean") if accelerator.num_processes > 1 else own.sum()
    )
    within = (own / own.sum().clamp(min=1e-9)).double()
    return list(zip(within, own / mean.clamp(min=1e-9), strict=True))


def warmup_cosine(step: int, *, steps: int, warmup_steps: int, final: float) -> float:
    """Returns the learning rate of a step as a share of its peak: linear rise, then cosine decay.

    Loshchilov and Hutter, SGDR, ICLR 2017, equation 5, without restarts. Steps count from 0;
    `final` is the end of the decay, as a share of the peak.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, steps - warmup_steps)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share))


def parameter_groups(
    model: nn.Module, weight_decay: float, factors: Mapping[str, float]
) -> list[dict[str, object]]:
    """Returns the optimiser's parameter groups, with and without weight decay.

    Vectors are without weight decay, and the parameters that a module lists in
    `no_weight_decay()`, such as frequencies: decay to zero would blur positions. Parameters without
    gradients are in no group. `factors` are those of the learning rate by pattern of parts, see
    `PartPatterns`; parts with another factor than 1 have groups of their own, which follow.

    Raises:
        ValueError: A pattern matches nothing.
    """
    spared = {id(parameter) for parameter in model.parameters() if parameter.ndim < 2}
    for module in model.modules():
        listed: set[str] = getattr(module, "no_weight_decay", set)()
        spared |= {id(parameter) for name, parameter in module.named_parameters() if name in listed}
    patterns = PartPatterns("trainer.learning_rate_factors", list(factors), model)
    values = list(factors.values())
    members: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, True): [], (1.0, False): []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            number = patterns.index(name)
            factor = 1.0 if number is None else float(values[number])
            members.setdefault((factor, id(parameter) not in spared), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, FACTOR: factor}
        for (factor, decays), parameters in members.items()
    ]


class MovingAverage:
    """An exponential moving average of a model's parameters that are trained.

    The first step copies the weights; after n steps the decay is (1 + n) / (10 + n), until it
    reaches `decay`. Equal to the bit to diffusers' `EMAModel` without its warm-up, whose import
    takes seconds.

    Attributes:
        names: Names of the parameters with gradients; the others are their own average.
        parameters: The averages, in the same order.
        steps: Number of averaged steps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Starts at the weights of the model, which is on its final device.

        `decay` is the largest weight of the previous average, in [0, 1).
        """
        self._model = model
        self._decay = decay
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self.names = list(trained)
        self._trained: list[Tensor] = list(trained.values())
        self.parameters = [parameter.detach().clone() for parameter in self._trained]
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Adds the current weights of the model; on a GPU with few kernels for all of them."""
        share = 1.0 - min((1 + self.steps) / (10 + self.steps), self._decay) if self.steps else 1.0
        change = torch._foreach_sub(self.parameters, self._trained)  # pyright: ignore
        torch._foreach_mul_(change, share)  # pyright: ignore
        torch._foreach_sub_(self.parameters, change)  # pyright: ignore
        self.steps += 1

    def copy_to_model(self) -> None:
        """Copies the averages into the model."""
        _fill(self._trained, self.parameters)

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """Yields the model with the averages, in evaluation mode without gradients."""
        own = [parameter.detach().clone() for parameter in self._trained]
        self.copy_to_model()
        self._model.eval()
        try:
            with torch.no_grad():
                yield self._model
        finally:
            _fill(self._trained, own)


@torch.no_grad()
def _fill(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
