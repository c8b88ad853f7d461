"""A loss that is no number: the run stops before it learns from it, and says what it looked at."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from stringline.encoders.training.interfaces import Batch

NAMED = 4  # Examples that the message itself names.


class BrokenLossError(ValueError):
    """The loss or its gradients are not finite; the weights are still those of the step before."""


def check_finite(
    loss: float,
    gradient_norm: float,
    *,
    step: int,
    batch: Batch,
    names: Callable[[], Sequence[str]],
    file: Path,
) -> None:
    """Refuses to learn from a loss that is not finite.

    Args:
        loss: Of the step.
        gradient_norm: Of the step, over all processes.
        step: Which one.
        batch: What the loss was computed from.
        names: Says what each example of it is; an empty list if nobody knows.
        file: Where all examples are named.

    Raises:
        BrokenLossError: The loss or the norm is not finite. It names the step, its examples and
            what of them is not finite.
    """
    if math.isfinite(loss) and math.isfinite(gradient_norm):
        return
    what = (
        f"loss is {loss}"
        if not math.isfinite(loss)
        else f"gradient norm is {gradient_norm} and the loss {loss}"
    )
    examples = list(names())
    broken = broken_examples(batch)
    if examples:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name}\n" for name in [f"The {what} at step {step}.", *examples]))
    inputs = [f"{key} of {_listed(rows, examples)}" for key, rows in broken.items()]
    raise BrokenLossError(
        f"The {what} at step {step}. "
        + (
            f"It saw {_listed(range(len(examples)), examples)}; all are in {file}. "
            if examples
            else ""
        )
        + (f"Not finite: {'; '.join(inputs)}. " if broken else "All that it saw is finite. ")
        + "Nothing was learned from it, and what is kept of earlier steps is as it was. "
        + (
            "Repair or leave out those examples."
            if broken
            else "Lower trainer.learning_rate or set trainer.precision=no."
        )
    )


def broken_examples(batch: Batch) -> dict[str, list[int]]:
    """Returns, for each tensor that holds numbers that are not finite, the examples in which it does."""
    found = {key: _rows(value) for key, value in batch.items() if value.is_floating_point()}
    return {key: rows for key, rows in found.items() if rows}


def _rows(value: Tensor) -> list[int]:
    rows: list[int] = (
        (~value.isfinite()).reshape(len(value), -1).any(dim=1).nonzero()[:, 0].tolist()
    )
    return rows


def _listed(rows: Sequence[int], names: Sequence[str]) -> str:
    shown = ", ".join(names[row] if names else f"example {row}" for row in rows[:NAMED])
    return shown + (f" and {len(rows) - NAMED} more" if len(rows) > NAMED else "")
