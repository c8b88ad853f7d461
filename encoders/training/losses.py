"""Losses of a run: the check for numbers that are not finite, and the validation loss."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from stringline.encoders.training.interfaces import Batch, Weigh
from stringline.encoders.training.optimisation import examples

_LISTED = 4  # Examples that an error message names.


class BrokenLossError(ValueError):
    """The loss or its gradients are not finite; the weights are still those of the step before."""


def check_finite(
    loss: float,
    gradient_norm: float,
    *,
    step: int,
    batch: Batch | None,
    names: Callable[[], Sequence[str]],
    file: Path,
) -> None:
    """Raises a BrokenLossError, with the step and its examples, if a number is not finite.

    The gradient norm is that of all processes. The batch is None after the update of the weights.
    `names` returns the name of each example of the batch, or no names if they are unknown; `file`
    receives them.
    """
    if math.isfinite(loss) and math.isfinite(gradient_norm):
        return
    what = (
        f"loss is {loss}"
        if not math.isfinite(loss)
        else f"gradient norm is {gradient_norm} and the loss {loss}"
    )
    named = list(names())
    broken = {} if batch is None else broken_examples(batch)
    if named:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name}\n" for name in [f"The {what} at step {step}.", *named]))
    message = f"The {what} at step {step}. "
    if named:
        message += f"Its examples: {_listed(range(len(named)), named)}; {file} lists all of them. "
    if batch is None:
        raise BrokenLossError(
            f"{message}The saved state of earlier steps is unchanged. Continue with "
            f"trainer.read_every=1, which names the inputs that are not finite."
        )
    if broken:
        inputs = "; ".join(f"{key} of {_listed(rows, named)}" for key, rows in broken.items())
        message += f"Inputs that are not finite: {inputs}. Repair or exclude those examples. "
    else:
        message += (
            "All inputs are finite. Lower trainer.learning_rate or set trainer.precision=no. "
        )
    raise BrokenLossError(
        f"{message}The weights and the saved state of earlier steps are unchanged."
    )


def broken_examples(batch: Batch) -> dict[str, list[int]]:
    """Returns, for each tensor with numbers that are not finite, the examples that contain them."""
    found = {key: _rows(value) for key, value in batch.items() if value.is_floating_point()}
    return {key: rows for key, rows in found.items() if rows}


def _rows(value: Tensor) -> list[int]:
    broken = ~value.isfinite()
    rows: list[int] = broken.reshape(len(value), -1).any(dim=1).nonzero()[:, 0].tolist()
    return rows


def _listed(rows: Sequence[int], names: Sequence[str]) -> str:
    shown = ", ".join(names[row] if names else f"example {row}" for row in rows[:_LISTED])
    return shown + (f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else "")


class ValidationLoss:
    """The mean loss of a model on fixed batches with fixed random draws.

    The draws of a loss, such as noise levels, scatter more than a model improves in a thousand
    steps. With the same draws every time, differences of the loss are differences of the model.
    """

    def __init__(
        self, batches: Callable[[], Iterator[Batch]], *, seed: int = 0, weigh: Weigh | None = None
    ) -> None:
        """Builds the loss; `batches` returns the same batches on every call."""
        self._batches = batches
        self._seed = seed
        self._weigh = weigh

    def __call__(self, model: nn.Module) -> float:
        """Returns the mean loss of a model in evaluation mode, without drawing random numbers.

        The state of the global generator is restored.
        """
        device = next(model.parameters()).device
        total = 0.0
        weights = 0.0
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
            for number, batch in enumerate(self._batches()):
                moved = {key: value.to(device) for key, value in batch.items()}
                torch.manual_seed(self._seed + number)
                loss: Tensor = model.loss(moved)  # type: ignore[operator]  # See LossModule.
                weight = float(self._weigh(moved)) if self._weigh else float(examples(moved))
                total = total + loss.item() * weight
                weights = weights + weight
        if not weights:
            raise ValueError(
                "There is nothing to validate with; allowed: at least one batch with a weight "
                "above 0."
            )
        return total / weights
