"""Two towers, of images and of texts, for retrieval in both directions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.encoders.perception.classifier import POOLS, Pool, pooled
from stringline.encoders.perception.image_arrays import Labelled
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.image_encoder import ImageEncoderFactory
from stringline.encoders.perception.perception_network import (
    Drawing,
    Examples,
    Measurement,
    PerceptionNetwork,
)
from stringline.encoders.perception.sigmoid_loss import (
    INITIAL_LOG_TEMPERATURE,
    initial_bias,
    sigmoid_loss,
)
from stringline.encoders.perception.text_tower import TextTowerFactory

RANKS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class TwoTowersSettings:
    """Settings of `TwoTowers`.

    Attributes:
        image_encoder: Factory of the image encoder.
        text: Factory of the text tower.
        width: Channels of the common space.
        pool: What is read of an image, see `ClassifierSettings`.
        batch_size: Pairs of a step, from which the initial bias follows, see `initial_bias`.
    """

    image_encoder: ImageEncoderFactory
    text: TextTowerFactory
    batch_size: int
    width: int = 128
    pool: Pool = "cls"

    def __post_init__(self) -> None:
        COUNT.check(width=self.width)
        if self.pool not in POOLS:
            raise unknown_name("pool", self.pool, POOLS)


class TwoTowers(PerceptionNetwork):
    """An image tower and a text tower, trained by the sigmoid loss (SigLIP, Zhai et al., 2023).

    In each step an image comes with one of its captions; equal captions of a batch are pairs.
    """

    needs = frozenset({"captions", "texts"})

    def __init__(self, settings: TwoTowersSettings, contract: ImageContract) -> None:
        """Builds the towers.

        Args:
            settings: Settings of the network.
            contract: What the images have, with a tokeniser.

        Raises:
            ValueError: A batch has fewer than two pairs.
        """
        super().__init__(settings.image_encoder, contract)
        self.pool = settings.pool
        self.text = settings.text(tokeniser=contract.tokeniser)
        self.project_image = nn.Linear(self.image_encoder.dim, settings.width)
        self.project_text = nn.Linear(self.text.dim, settings.width)
        self.log_temperature = nn.Parameter(torch.tensor(INITIAL_LOG_TEMPERATURE))
        self.bias = nn.Parameter(torch.tensor(initial_bias(settings.batch_size)))

    def targets(self, labelled: Labelled, generator: np.random.Generator) -> dict[str, Array]:
        """Returns the tokens of a drawn caption, and a number that equal captions share."""
        captions = _captions(labelled)
        caption = captions[int(generator.integers(len(captions)))]
        digest = hashlib.blake2b(caption.encode(), digest_size=8).digest()
        return {
            "text": self.text.numbers(caption),
            "caption": np.asarray(int.from_bytes(digest, "little", signed=True), np.int64),
        }

    def images(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns unit vectors of images, (B, width)."""
        found = self.project_image(pooled(self.image_encoder(batch), self.pool))
        return functional.normalize(found.float(), dim=-1)

    def texts(self, numbers: Tensor) -> Tensor:
        """Returns unit vectors of texts (B, length), (B, width)."""
        return functional.normalize(self.project_text(self.text(numbers)).float(), dim=-1)

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the sigmoid loss; all equal captions of the batch are pairs."""
        captions = batch["caption"]
        return sigmoid_loss(
            self.images(batch),
            self.texts(batch["text"]),
            self.log_temperature,
            self.bias,
            captions[:, None] == captions,
        )

    @torch.no_grad()
    def measure(self, examples: Examples) -> Measurement:
        """Returns R@1, R@5 and R@10 in both directions, the pools, and the chance of R@1.

        The pools are all images and all different captions of the examples. A query is a hit if
        any of its captions, or images, is among the first k. `truncated` counts the captions that
        are longer than the text tower.
        """
        captions = [_captions(one) for one in examples]
        pool = sorted({caption for own in captions for caption in own})
        number = {caption: place for place, caption in enumerate(pool)}
        holds = torch.zeros(len(captions), len(pool), dtype=torch.bool)
        for row, own in enumerate(captions):
            holds[row, [number[caption] for caption in own]] = True
        scores = self._scores(examples, pool)
        ranks = {"i2t": best_ranks(scores, holds), "t2i": best_ranks(scores.T, holds.T)}
        values = {
            f"{way}_r{k}": float((found < k).float().mean())
            for way, found in ranks.items()
            for k in RANKS
        }
        values |= {
            "images": float(len(captions)),
            "captions": float(len(pool)),
            "i2t_chance_r1": float(holds.float().mean()),
            "t2i_chance_r1": float(holds.float().mean()),
            "truncated": float(sum(map(self.text.is_longer, pool))),
        }
        guesses = scores.argmax(dim=1).tolist()
        drawings = [
            Drawing(row, captions[row][0], pool[guess]) for row, guess in enumerate(guesses)
        ]
        return Measurement(values, {"i2t_rank": ranks["i2t"].tolist()}, drawings)

    def _scores(self, examples: Examples, pool: Sequence[str]) -> Tensor:
        """Returns the similarities of images and captions, (images, captions)."""
        device = self.device
        images = torch.cat([self.images(batch) for _, batch in examples.batches(device)])
        numbers = torch.from_numpy(np.stack([self.text.numbers(text) for text in pool])).to(device)
        texts = torch.cat([self.texts(part) for part in numbers.split(examples.batch_size)])
        return (images @ texts.T).cpu()


def best_ranks(scores: Tensor, holds: Tensor) -> Tensor:
    """Returns for each query the number of wrong answers before its first right one, (Q,).

    Args:
        scores: (Q, N) of the answers.
        holds: (Q, N) bool, which of them are right; each query has one. Of equal scores, wrong
            answers count as the first ones.
    """
    best = scores.masked_fill(~holds, -torch.inf).amax(dim=1, keepdim=True)
    return ((scores >= best) & ~holds).sum(dim=1)


def _captions(labelled: Labelled) -> tuple[str, ...]:
    if isinstance(labelled, LabelledClip) or not labelled.captions:
        raise ValueError("A clip, or an image without captions; allowed: images with captions.")
    return labelled.captions
