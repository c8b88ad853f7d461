"""A model whose loss draws random numbers, and its data, for tests of the training loop."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.monitor import History
from stringline.encoders.training.trainer import Trainer


class Line(nn.Module):
    """A line with input noise, so that random numbers matter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.2)

    def loss(self, batch: Batch) -> Tensor:
        noisy = self.drop(batch["x"] + 0.1 * torch.randn_like(batch["x"]))
        return ((self.layer(noisy) - batch["y"]) ** 2).mean()


class Points:
    """Batches on a fixed line; step n always gives the same points."""

    def __init__(self, before: Callable[[int], None] = lambda step: None) -> None:
        self.before = before

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Batch]:
        slope = torch.tensor([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]])
        for step in range(first_step, last_step):
            self.before(step)
            x = torch.randn(
                16, 3, generator=torch.Generator().manual_seed(step * processes + process)
            )
            yield {"x": x, "y": x @ slope}


def run(
    directory: Path,
    *,
    before: Callable[[int], None] = lambda step: None,
    model: nn.Module | None = None,
    callbacks: Callbacks | None = None,
    **settings: Any,
) -> tuple[nn.Module, History]:
    """Trains 40 steps."""
    torch.manual_seed(3)
    model = model or Line()
    chosen: dict[str, Any] = {"steps": 40, "batch_size": 16, "seed": 5}
    chosen |= {"save_every": 10, "probe_every": 15}
    chosen |= settings
    trainer = Trainer(**chosen)
    return model, trainer.fit(
        model, Points(before), directory, save_model=lambda _: None, callbacks=callbacks
    )


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """Returns whether two models are equal to the bit."""
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
