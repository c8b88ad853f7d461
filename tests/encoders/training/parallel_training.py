"""The run of `test_accumulation.py`: DIRECTORY, windows per process, and maybe `apart`.

Apart, every process but the first has a directory of its own, as on machines without a shared one.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.monitor import process_group
from stringline.encoders.training.trainer import Trainer


class Line(nn.Module):
    """A mean over a mask, without random draws."""

    def __init__(self) -> None:
        """Starts with the same weights everywhere."""
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean."""
        error = ((self.layer(batch["x"]) - batch["y"]) ** 2).sum(dim=1)
        return (error * batch["mask"]).sum() / batch["mask"].sum().clamp(min=1)


class Rows:
    """Eight rows per step, shared among the processes."""

    def __init__(self, size: int) -> None:
        """Takes the rows of one process."""
        self.size = size

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Batch]:
        """Yields the rows of this process."""
        for step in range(first_step, last_step):
            rows = torch.arange(8) + 8 * step
            rows = rows[self.size * process : self.size * (process + 1)]
            x = torch.stack([torch.sin(rows * 1.0), torch.cos(rows * 0.7), rows * 0.01], dim=1)
            yield {"x": x, "y": x[:, :2] * 3, "mask": (rows % 8 > 2).float()}


def main(directory: Path, size: int) -> None:
    """Trains in one piece, and in two parts per step."""
    for parts in (1, 2):
        trainer = Trainer(
            steps=12,
            batch_size=size,
            accumulate=parts,
            save_every=6,
            precision="no",
            learning_rate=0.01,
            compile=False,
        )
        folder = directory / str(parts)

        def save(model: nn.Module, folder: Path = folder) -> None:
            save_file(model.state_dict(), folder / "weights.safetensors")

        callbacks = Callbacks(loss_weight=lambda batch: batch["mask"].sum())
        trainer.fit(Line(), Rows(size), folder, save_model=save, callbacks=callbacks)


if __name__ == "__main__":
    alone = "_of_its_own" if "apart" in sys.argv and os.environ["RANK"] != "0" else ""
    with process_group():
        main(Path(sys.argv[1] + alone), int(sys.argv[2]))
