"""A text tower: byte pairs, and the transformer of the image encoder over their order."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT
from stringline.encoders.perception.byte_pairs import PADDING, BytePairs
from stringline.encoders.perception.text_network import TextNetwork
from stringline.encoders.positions.presets import Rope
from stringline.encoders.vision.attention import check_heads
from stringline.encoders.vision.vit import VisionTransformer

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
            tokeniser: See `BytePairs`.
            dim: Width of the tokens, a multiple of 2 * heads.
            depth: Number of blocks.
            heads: Number of attention heads.
            length: Largest number of tokens of a text.
            truncate: Whether longer texts lose their end; otherwise they are refused.

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
