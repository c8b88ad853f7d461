"""Low-rank adapters of linear layers (Hu et al., LoRA, ICLR 2022, arXiv 2106.09685)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from stringline.encoders.training.part_patterns import PartPatterns

WEIGHT = "weight"


class LowRank(nn.Module):
    """A weight W plus U D of rank r; U is initially zero, so the sum is W (equation 3, alpha = r).

    It is a parametrisation of the weight (`torch.nn.utils.parametrize`), not of the layer's forward
    pass, as in peft: attention over positions reads its weights, to fold the basis into them, and
    adapters in a forward pass would have no effect there.
    """

    def __init__(self, weight: Tensor, rank: int, generator: torch.Generator) -> None:
        """Draws D as a linear layer's weight (He et al., 2015); `weight` is (outputs, inputs)."""
        super().__init__()
        outputs, inputs = weight.shape
        bound = 1 / math.sqrt(inputs)
        drawn = torch.rand(rank, inputs, generator=generator) * 2 * bound - bound
        self.down = nn.Parameter(drawn.to(weight))
        self.up = nn.Parameter(weight.new_zeros(outputs, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Returns the sum."""
        return weight + self.up @ self.down


class Adapters:
    """The adapters of a model; every linear layer in the chosen parts has one."""

    def __init__(self, model: nn.Module, ranks: Mapping[str, int], seed: int) -> None:
        """Adds the adapters and freezes the other parameters of those parts.

        Args:
            model: The model, changed in place.
            ranks: Rank by pattern, see `PartPatterns`.
            seed: Seed of the initial values.

        Raises:
            ValueError: A pattern matches nothing, or no linear layer.
        """
        patterns = PartPatterns("trainer.lora", list(ranks), model)
        found = {
            name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)
        }
        chosen = {name: number for name in found if (number := patterns.index(name)) is not None}
        for number, pattern in enumerate(ranks):
            alone = PartPatterns("trainer.lora", [pattern], model)
            if not any(name in alone for name in found):
                raise ValueError(
                    f"trainer.lora names {list(ranks)[number]!r}, which has no linear layer; "
                    f"allowed: parts with linear layers."
                )
        for name, parameter in model.named_parameters():
            if name in patterns:
                parameter.requires_grad_(False)
        generator = torch.Generator().manual_seed(seed)
        each = list(ranks.values())
        self._layers: Sequence[nn.Linear] = [found[name] for name in chosen]
        for layer, number in zip(self._layers, chosen.values(), strict=True):
            adapter = LowRank(layer.weight, each[number], generator)
            parametrize.register_parametrization(layer, WEIGHT, adapter)

    def merge_(self) -> None:
        """Adds the adapters to the weights and removes them."""
        for layer in self._layers:
            parametrize.remove_parametrizations(layer, WEIGHT, leave_parametrized=True)
            # The weight was appended; as before, it comes before the bias.
            bias = layer.bias
            del layer.bias
            layer.register_parameter("bias", bias)

    @contextmanager
    def merged(self) -> Iterator[None]:
        """Makes the model's state dictionary that of the model without adapters, for a block."""
        with ExitStack() as stack:
            for layer in self._layers:
                hook = layer.register_state_dict_post_hook(_merge)  # type: ignore[no-untyped-call]
                stack.callback(hook.remove)
            yield


def _merge(layer: nn.Linear, state: dict[str, Any], prefix: str, _: object) -> None:
    """Replaces the parts of a weight in a state dictionary by their sum."""
    for key in [key for key in state if key.startswith(f"{prefix}parametrizations.{WEIGHT}.")]:
        del state[key]
    state[f"{prefix}{WEIGHT}"] = layer.weight.detach()
