"""Losses and gradient norms of steps, which are read from the device together."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reading:
    """The numbers of a step: training time so far, loss and gradient norm."""

    step: int
    seconds: float
    loss: float
    gradient_norm: float


class Readings:
    """Collects numbers on the device; the host waits for the device only when it reads them."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, float]] = []
        self._numbers: list[Tensor] = []

    def add(self, step: int, seconds: float, loss: Tensor, norm: Tensor) -> None:
        """Adds the scalars of a step."""
        self._steps.append((step, seconds))
        self._numbers.append(torch.stack((loss.double(), norm.double())))

    def read(self) -> list[Reading]:
        """Returns the numbers of all steps since the last call."""
        if not self._steps:
            return []
        found: list[list[float]] = torch.stack(self._numbers).tolist()
        readings = [
            Reading(step, seconds, loss, norm)
            for (step, seconds), (loss, norm) in zip(self._steps, found, strict=True)
        ]
        self._steps.clear()
        self._numbers.clear()
        return readings
