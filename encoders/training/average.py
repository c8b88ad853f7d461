"""The moving average of the weights, which is what is probed, evaluated and kept."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """An exponential moving average of a model's parameters.

    The first step takes the weights as they are; after n steps the decay is (1 + n) / (10 + n), until it reaches `decay`. The
    same to the bit as diffusers' `EMAModel` without its warm-up, whose import takes seconds, since it brings all its networks.

    Attributes:
        parameters: The averages, in the order of the model's parameters.
        steps: How many weights are in them.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Starts at the weights of the model.

        Args:
            model: Whose parameters are averaged, where they are now.
            decay: The largest weight of what was before, in [0, 1).
        """
        self._model, self._decay = model, decay
        self.parameters = [parameter.detach().clone() for parameter in model.parameters()]
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Takes the model's present weights in."""
        share = 1.0 - min((1 + self.steps) / (10 + self.steps), self._decay) if self.steps else 1.0
        for average, parameter in zip(self.parameters, self._model.parameters(), strict=True):
            average.sub_(share * (average - parameter))
        self.steps += 1

    def give(self) -> None:
        """Leaves the averages in the model."""
        _fill(self._model, self.parameters)

    @contextmanager
    def lent(self) -> Iterator[nn.Module]:
        """Lends the model with the averages, in evaluation mode and without gradients; it gets its own weights back after."""
        own = [parameter.detach().clone() for parameter in self._model.parameters()]
        self.give()
        self._model.eval()
        try:
            with torch.no_grad():
                yield self._model
        finally:
            _fill(self._model, own)


@torch.no_grad()
def _fill(model: nn.Module, values: list[Tensor]) -> None:
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.copy_(value)
