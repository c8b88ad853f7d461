"""A text tower of CLIP or SigLIP, from a checkpoint of transformers."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.encoders.perception.text_network import TextNetwork
from stringline.encoders.pretrained.text_models import (
    StoredText,
    TextModel,
    load_text_model,
    pooled,
    stored_tokenizer,
    without_reports,
)

_ABSENT = -1
"""The number of padding that the attention leaves out."""

_ANY = "a"
"""A text."""


class PretrainedTextTower(TextNetwork):
    """Encodes texts by the text tower of CLIP, SigLIP or SigLIP 2, with its own tokenizer.

    The features are those of `get_text_features` of transformers: CLIP's state at the end token
    (Radford et al., 2021), or SigLIP's at the last of all its tokens, which is padding after
    shorter texts (Zhai et al., 2023), each after the linear map of the checkpoint. A checkpoint of
    `CLIPTextModel`, which lacks this map, gives its `pooler_output`. Padding is left out of the
    attention if the tokenizer returns a mask; the published ones of SigLIP return none.

    Attributes:
        dim: Width of the features.
        length: Largest number of tokens of a text, those of its beginning and end included.
        frozen: Whether the weights stay as they are, in evaluation mode.
        network: The network of transformers.
    """

    def __init__(
        self,
        *,
        model: str | StoredText,
        length: int | None = None,
        truncate: bool = False,
        frozen: bool = True,
        tokeniser: str = "",
    ) -> None:
        """Loads the tower.

        Args:
            model: A folder written by `save_pretrained` (network and tokenizer), or a name on the
                Hugging Face hub, of CLIP or SigLIP, or of their text towers alone.
            length: Largest number of tokens of a text; None: as many as the network reads. SigLIP
                always gets as many, padded, as in its training.
            truncate: Whether longer texts lose their end; otherwise they are refused.
            frozen: Whether the weights are not trained.
            tokeniser: Not used, since the checkpoint has a tokenizer.

        Raises:
            ValueError: transformers is missing, the checkpoint cannot be loaded or is another
                network, or `length` is out of range.
        """
        super().__init__()
        with without_reports():
            found = load_text_model(model, _text_part)
        _check(found, str(model))
        self.network: nn.Module = found.network.float()
        self._found = found
        config = found.network.config
        self._most = int(min(config.max_position_embeddings, found.tokenizer.model_max_length))
        self.length = self._most if length is None else length
        least = found.tokenizer.num_special_tokens_to_add() + 1
        Range(least=least, most=self._most, whole=True).check(length=self.length)
        self._padded = self._most if config.model_type.startswith("siglip") else self.length
        self._masks = "attention_mask" in found.tokenizer.model_input_names
        self._padding = int(found.tokenizer.pad_token_id or 0)
        self.dim = _width(found)
        self.truncate = truncate
        self.frozen = frozen
        self.network.requires_grad_(not frozen)
        self._known: dict[str, Tensor] = {}
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]
        # The first call sets the truncation of a tokenizer, which fails while a thread reads it.
        self._cutting: Any = copy.deepcopy(found.tokenizer) if truncate else None
        for first in (self._tokens, self._cut) if truncate else (self._tokens,):
            first(_ANY)

    def forward(self, numbers: Tensor) -> Tensor:
        """Returns features (B, dim), float32, of tokens (B, N) int64 by `numbers`."""
        present = numbers != _ABSENT
        inputs = {"input_ids": torch.where(present, numbers, self._padding)}
        if self._masks:
            inputs["attention_mask"] = present.long()
        return pooled(self.network(**inputs), None)

    def features(self, texts: Sequence[str]) -> Tensor:
        """Returns features (B, dim) of texts; a frozen network encodes each text once."""
        if not self.frozen:
            return super().features(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            device = next(self.network.parameters()).device
            # All later steps use them, so they do not depend on the precision of this one.
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                self._known.update(zip(missing, super().features(missing), strict=True))
        return torch.stack([self._known[text] for text in texts])

    def numbers(self, text: str) -> NDArray[np.int64]:
        """Returns the tokens (N,) of a text, padded; N is `length`, or all places for SigLIP.

        Raises:
            ValueError: The text is empty, or longer and not to be truncated.
        """
        if not text.strip():
            raise ValueError(f"The text is {text!r}; allowed: at least one character.")
        found = self._tokens(text)
        if len(found) > self.length:
            self._check_cut(text, len(found))
            found = self._cut(text)
        padded = np.full(self._padded, _ABSENT if self._masks else self._padding, np.int64)
        is_left = self._found.tokenizer.padding_side == "left"
        first = self._padded - len(found) if is_left else 0
        padded[first : first + len(found)] = found
        return padded

    def is_longer(self, text: str) -> bool:
        """Returns whether a text has more tokens than the tower reads."""
        return len(self._tokens(text)) > self.length

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay: the embeddings."""
        return {
            f"{name}.weight"
            for name, module in self.named_modules()
            if isinstance(module, nn.Embedding)
        }

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of the tower; a frozen network stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def files(self) -> dict[str, bytes]:
        """Returns configuration and tokenizer as files of a `StoredText`, by their names."""
        return self._found.files()

    def check_tokenizer(self, folder: Path) -> None:
        """Checks that a checkpoint has the tokens of this tower; see `TextNetwork`."""
        if not folder.is_dir():
            return
        vocabulary = stored_tokenizer(StoredText(folder)).get_vocab()
        if vocabulary != self._found.tokenizer.get_vocab():
            raise ValueError(
                f"The text tower of {folder.parent} has {len(vocabulary)} tokens, which differ "
                f"from those of this network; allowed: the same tokenizer. Leave the text tower "
                f"out: include=[image_encoder]."
            )

    def _tokens(self, text: str) -> list[int]:
        """Returns all tokens of a text."""
        found: list[int] = self._found.tokenizer(text, verbose=False)["input_ids"]
        return found

    def _cut(self, text: str) -> list[int]:
        """Returns the first tokens of a text, and the end token."""
        found: list[int] = self._cutting(text, truncation=True, max_length=self.length)["input_ids"]
        return found

    def _check_cut(self, text: str, count: int) -> None:
        """Checks that a text with `count` tokens may be cut."""
        if not self.truncate:
            more = f"Raise head.text.length (up to {self._most}), or s"
            raise ValueError(
                f"The text {text[:60]!r} has {count} tokens; allowed: at most {self.length}. "
                f"{more if self.length < self._most else 'S'}et head.text.truncate=true."
            )


def _forget(tower: nn.Module, keys: object) -> None:
    """Drops the features of the weights before these."""
    assert isinstance(tower, PretrainedTextTower)
    tower._known.clear()


_PROJECTED = "CLIPTextModelWithProjection"
_TEXT_PARTS = {"clip": _PROJECTED, "siglip": "SiglipTextModel", "siglip2": "Siglip2TextModel"}
_TEXT_MODELS = {
    "clip_text_model": "CLIPTextModel",
    "siglip_text_model": "SiglipTextModel",
    "siglip2_text_model": "Siglip2TextModel",
}


def _text_part(config: Any) -> tuple[str, Any]:
    """Returns the class and the configuration of the text tower of a network.

    Raises:
        ValueError: The network has no such tower.
    """
    kind = str(config.model_type)
    if kind in _TEXT_PARTS:
        part = copy.deepcopy(config.text_config)
        if kind == "clip":
            part.projection_dim = config.projection_dim
        return _TEXT_PARTS[kind], part
    if kind not in _TEXT_MODELS:
        raise unknown_name("text tower for the model type", kind, [*_TEXT_PARTS, *_TEXT_MODELS])
    projected = _PROJECTED in (config.architectures or ())
    return _PROJECTED if projected else _TEXT_MODELS[kind], config


def _width(found: TextModel) -> int:
    """Returns the number of features."""
    config = found.network.config
    if config.model_type.startswith("siglip"):
        return int(config.projection_size)
    projected = type(found.network).__name__ == _PROJECTED
    return int(config.projection_dim if projected else config.hidden_size)


def _check(found: TextModel, model: str) -> None:
    """Checks that a text tower is complete, and has an embedding of each token.

    Raises:
        ValueError: It lacks weights, or has another tokenizer.
    """
    if found.missing:
        raise ValueError(
            f"{model!r} lacks weights of the text tower: {', '.join(found.missing[:3])}; allowed: "
            f"a checkpoint with all of them."
        )
    known = int(found.network.config.vocab_size)
    if (count := len(found.tokenizer)) > known:
        raise ValueError(
            f"The tokenizer of {model!r} has {count} tokens; allowed: at most {known}, those of "
            f"the network."
        )
