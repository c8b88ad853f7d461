"""What a run changes in a model until it ends: frozen parts, adapters, and how layers compute.

Adapters of linear layers have a low rank (Hu et al., LoRA, ICLR 2022, arXiv 2106.09685).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from stringline.encoders.training.optimisation import PartPatterns
from stringline.encoders.training.settings import TrainerSettings

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


ATTENTION_TYPE = "attention_type"
"""Attribute of modules that attend over positions: the type of rotated queries, keys and values."""


class Adaptation:
    """The changes of a model by the settings of a run; `with` undoes them and merges adapters."""

    def __init__(self, settings: TrainerSettings, model: nn.Module) -> None:
        """Changes the model in place.

        Raises:
            ValueError: A pattern matches nothing, nothing is left to train, or a setting does not
                apply to the model.
        """
        self._model = model
        self._undo = ExitStack()
        self._frozen: list[nn.Module] = []
        self._adapters: Adapters | None = None
        try:
            self._change(settings)
        except ValueError:
            self._undo.close()
            raise

    def __enter__(self) -> "Adaptation":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Undoes the changes, except those of the weights."""
        self._undo.close()

    def train(self) -> None:
        """Puts the model into training mode, except frozen parts."""
        self._model.train()
        for module in self._frozen:
            module.eval()

    @contextmanager
    def merged(self) -> Iterator[None]:
        """Makes the model's state dictionary that of the model as it was built, for a block."""
        if self._adapters is None:
            yield
        else:
            with self._adapters.merged():
                yield

    def _change(self, settings: TrainerSettings) -> None:
        for parameter in self._model.parameters():
            self._undo.callback(parameter.requires_grad_, parameter.requires_grad)
        self._freeze(settings)
        if settings.lora:
            self._adapters = Adapters(self._model, settings.lora, settings.seed)
            self._undo.callback(self._adapters.merge_)
        if not any(parameter.requires_grad for parameter in self._model.parameters()):
            raise ValueError(
                f"trainer.freeze is {list(settings.freeze)}: no parameter is left to train."
            )
        if settings.gradient_checkpointing:
            self._recompute()
        if settings.attention == "bf16":
            self._attend_in(torch.bfloat16)
        if settings.channels_last:
            self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _freeze(self, settings: TrainerSettings) -> None:
        patterns = PartPatterns("trainer.freeze", settings.freeze, self._model)
        for name, parameter in self._model.named_parameters():
            if name in patterns:
                parameter.requires_grad_(False)
        self._frozen = [module for name, module in self._model.named_modules() if name in patterns]

    def _recompute(self) -> None:
        """Wraps the outermost entries of all lists of layers."""
        wrapped: list[nn.Module] = []
        inside: set[int] = set()
        for module in self._model.modules():
            for entry in module.children() if isinstance(module, nn.ModuleList) else ():
                if id(entry) not in inside and not isinstance(entry, nn.ModuleList):
                    wrapped.append(entry)
                    inside |= {id(each) for each in entry.modules()}
        if not wrapped:
            raise ValueError(
                "trainer.gradient_checkpointing is true, but the model has no list of layers; "
                "allowed: models with an nn.ModuleList."
            )
        for entry in wrapped:
            # An attribute of the object, which hides the method of its class.
            setattr(entry, "forward", _recomputed(entry))  # noqa: B010
            self._undo.callback(delattr, entry, "forward")

    def _attend_in(self, kind: torch.dtype) -> None:
        attending = [module for module in self._model.modules() if ATTENTION_TYPE in vars(module)]
        if not attending:
            raise ValueError(
                "trainer.attention is 'bf16', but the model has no attention over positions; "
                "allowed: 'float32'."
            )
        for module in attending:
            self._undo.callback(setattr, module, ATTENTION_TYPE, vars(module)[ATTENTION_TYPE])
            setattr(module, ATTENTION_TYPE, kind)


def _recomputed(module: nn.Module) -> Any:
    """Returns the forward pass of a module without stored activations, while it is trained."""
    forward = module.forward

    def recomputed(*arguments: Any, **named: Any) -> Any:
        if not (module.training and torch.is_grad_enabled()):
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    return recomputed
