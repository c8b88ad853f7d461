"""Text towers: one trained from scratch, and those of CLIP and SigLIP.

The first has byte pairs (Sennrich et al., 2016), learned from captions, and the transformer of
the image encoder over their order. The others are checkpoints of transformers.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, Range, unknown_name
from stringline.encoders.positions.rotary import Rope
from stringline.encoders.pretrained.transformers_models import (
    StoredText,
    TextModel,
    load_text_model,
    pooled,
    stored_tokenizer,
    without_reports,
)
from stringline.encoders.vision.attention import check_heads
from stringline.encoders.vision.vit import VisionTransformer


class TextNetwork(nn.Module, ABC):
    """A text tower: from texts to tokens to features.

    Attributes:
        dim: Width of the features.
        length: Largest number of tokens of a text.
    """

    dim: int
    length: int

    @abstractmethod
    def forward(self, numbers: Tensor) -> Tensor:
        """Returns features (B, dim) of tokens (B, N) int64 by `numbers`."""

    @abstractmethod
    def numbers(self, text: str) -> NDArray[np.int64]:
        """Returns the tokens (N,) of a text, padded; N is the same for all texts.

        Raises:
            ValueError: The text is empty, or longer and not to be truncated.
        """

    def features(self, texts: Sequence[str]) -> Tensor:
        """Returns features (B, dim) of texts.

        Raises:
            ValueError: See `numbers`.
        """
        numbers = torch.from_numpy(np.stack([self.numbers(text) for text in texts]))
        found: Tensor = self(numbers.to(next(self.parameters()).device))
        return found

    @abstractmethod
    def is_longer(self, text: str) -> bool:
        """Returns whether a text has more tokens than the tower reads."""

    @abstractmethod
    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""

    def files(self) -> dict[str, bytes]:
        """Returns the files of a checkpoint besides weights and settings, by their paths."""
        return {}

    def check_tokenizer(self, folder: Path) -> None:
        """Checks that weights of a checkpoint belong to the tokenizer of this tower.

        Args:
            folder: `files` of the text tower in the checkpoint; it need not exist.

        Raises:
            ValueError: They belong to another tokenizer.
        """


TextTowerFactory = Callable[..., TextNetwork] | partial[TextNetwork]
"""Makes a text tower, given its `tokeniser`, the byte pairs of the training texts."""


PADDING = 0
_SPECIAL = "<pad>"
VOCABULARY = 2048


class BytePairs:
    """Byte-level byte pairs of lower-case text; no text contains an unknown token."""

    def __init__(self, text: str) -> None:
        """Reads a tokeniser from `to_text`.

        Raises:
            ImportError: The package tokenizers is not installed; the extra `perception` has it.
        """
        from tokenizers import Tokenizer  # Optional, and slow to import.

        self._tokenizer = Tokenizer.from_str(text)

    @classmethod
    def trained(cls, texts: Iterable[str], vocabulary: int = VOCABULARY) -> Self:
        """Learns at most `vocabulary` tokens from texts; the same texts give the same tokens."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[_SPECIAL],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        # Sorted, because ties between pairs are broken by the order of the texts.
        tokenizer.train_from_iterator(sorted(texts), trainer)
        return cls(tokenizer.to_str())

    def __len__(self) -> int:
        """Returns the number of tokens, the padding included."""
        return int(self._tokenizer.get_vocab_size())

    def to_text(self) -> str:
        """Returns the tokeniser as JSON."""
        return str(self._tokenizer.to_str())

    def count(self, text: str) -> int:
        """Returns the number of tokens of a text."""
        return len(self._tokenizer.encode(text).ids)

    def numbers(self, text: str, length: int, *, truncate: bool = False) -> NDArray[np.int64]:
        """Returns the tokens (length,) of a text, padded by 0.

        Raises:
            ValueError: The text is empty, or longer and not to be truncated.
        """
        found = self._tokenizer.encode(text).ids
        if not found:
            raise ValueError(f"The text is {text!r}; allowed: at least one character.")
        if len(found) > length and not truncate:
            raise ValueError(
                f"The text {text[:60]!r} has {len(found)} tokens; allowed: at most {length}. Raise "
                f"head.text.length, or set head.text.truncate=true."
            )
        padded = np.full(length, PADDING, np.int64)
        kept = found[:length]
        padded[: len(kept)] = kept
        return padded


_THETA = 10_000.0


class TextTower(TextNetwork):
    """Encodes texts by bidirectional attention over byte pairs, and reads CLS.

    The order of the tokens enters by RoPE (Su et al., RoFormer, 2021).

    Attributes:
        dim: Width of the features.
        length: Largest number of tokens.
    """

    def __init__(
        self,
        *,
        tokeniser: str,
        dim: int = 128,
        depth: int = 2,
        heads: int = 4,
        length: int = 64,
        truncate: bool = False,
    ) -> None:
        """Builds the tower.

        Args:
            dim: Width of the text tower, a multiple of 2 * heads.
            depth: Transformer blocks of the text tower.
            heads: Attention heads of the text tower.
            truncate: If True, longer texts lose their end, and captions are counted; if False, they
                are refused.

        Other Args:
            tokeniser: See `BytePairs`.
            length: Largest number of tokens of a text.

        Raises:
            ValueError: An argument is out of range.
        """
        super().__init__()
        COUNT.check(depth=depth, length=length)
        check_heads(dim, heads)
        self.dim = dim
        self.length = length
        self.truncate = truncate
        self.pairs = BytePairs(tokeniser)
        self.embed = nn.Embedding(len(self.pairs), dim, padding_idx=PADDING)
        nn.init.normal_(self.embed.weight, std=0.02)
        order = Rope(heads, dim // heads, 1, theta=_THETA)
        self.blocks = VisionTransformer(order, dim, depth, values=False, registers=1)

    def forward(self, numbers: Tensor) -> Tensor:
        """Returns features (B, dim) of tokens (B, length) int64, padded by 0."""
        order = torch.arange(numbers.shape[1], dtype=torch.float32, device=numbers.device)
        place = order.expand(len(numbers), -1).unsqueeze(-1)
        present = numbers != PADDING
        registers, _ = self.blocks.encode(self.embed(numbers), place, None, present)
        return registers[:, 0]

    def numbers(self, text: str) -> NDArray[np.int64]:
        """Returns the tokens (length,) of a text.

        Raises:
            ValueError: The text is empty, or longer and not to be truncated.
        """
        return self.pairs.numbers(text, self.length, truncate=self.truncate)

    def is_longer(self, text: str) -> bool:
        """Returns whether a text has more tokens than the tower reads."""
        return self.pairs.count(text) > self.length

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"embed.weight"}


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
            truncate: If True, longer texts lose their end, and captions are counted; if False, they
                are refused.
            frozen: If True, its weights stay as they are; if False, they are trained
                (trainer.learning_rate_factors={text: 0.1}).

        Other Args:
            length: Largest number of tokens of a text; if None, as many as the network reads.
                SigLIP always gets as many, padded, as in its training.
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
