"""A tokeniser of texts: byte pairs (Sennrich et al., 2016), learned from captions."""

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import NDArray

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
