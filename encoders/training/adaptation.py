"""What a run changes in a model until it ends: frozen parts, adapters, and how layers compute."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from stringline.encoders.training.low_rank import Adapters
from stringline.encoders.training.part_patterns import PartPatterns
from stringline.encoders.training.settings import TrainerSettings

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
