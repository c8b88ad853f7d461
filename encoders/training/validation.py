"""The loss on examples that are not trained on, measured the same way every time."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from stringline.encoders.training.interfaces import Batch, Weigh
from stringline.encoders.training.optimisation import examples


class ValidationLoss:
    """The mean loss of a model on fixed batches with fixed random draws.

    The draws of a loss, such as noise levels, scatter more than a model improves in a thousand
    steps. With the same ones every time, what is left of a difference is the model's.
    """

    def __init__(
        self, batches: Callable[[], Iterator[Batch]], *, seed: int = 0, weigh: Weigh | None = None
    ) -> None:
        """Keeps what to look at.

        Args:
            batches: Gives the same batches whenever it is called.
            seed: Of the draws.
            weigh: See `Asides`.
        """
        self._batches = batches
        self._seed = seed
        self._weigh = weigh

    def __call__(self, model: nn.Module) -> float:
        """Returns the mean loss; the state of the random numbers is as it was before.

        Args:
            model: In evaluation mode, on its device.

        Raises:
            ValueError: There is no batch.
        """
        device = next(model.parameters()).device
        total = 0.0
        weights = 0.0
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
            for number, batch in enumerate(self._batches()):
                placed = {key: value.to(device) for key, value in batch.items()}
                torch.manual_seed(self._seed + number)
                loss: Tensor = model.loss(placed)  # type: ignore[operator]  # See LossModule.
                weight = float(self._weigh(placed)) if self._weigh else float(examples(placed))
                total = total + loss.item() * weight
                weights = weights + weight
        if not weights:
            raise ValueError(
                "There is nothing to validate with; allowed: at least one batch with something "
                "that counts."
            )
        return total / weights
