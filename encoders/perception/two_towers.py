"""Two towers, of images and of texts, for retrieval in both directions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
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
    Statistic,
    mean_over_images,
)
from stringline.encoders.perception.retrieval_measures import (
    RECALLS,
    image_to_text,
    text_to_image,
)
from stringline.encoders.perception.sigmoid_loss import (
    INITIAL_LOG_TEMPERATURE,
    initial_bias,
    sigmoid_loss,
)
from stringline.encoders.perception.text_network import TextTowerFactory


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
        self.pool: Pool = settings.pool
        self.text = settings.text(tokeniser=contract.tokeniser)
        self.project_image = nn.Linear(self.image_encoder.dim, settings.width)
        self.project_text = nn.Linear(self.text.dim, settings.width)
        self.log_temperature = nn.Parameter(torch.tensor(INITIAL_LOG_TEMPERATURE))
        self.bias = nn.Parameter(torch.tensor(initial_bias(settings.batch_size)))

    def check(self, labelled: Labelled) -> None:
        """Checks that an image can be an example; see `PerceptionNetwork.check`."""
        super().check(labelled)
        for caption in _captions(labelled):
            self.text.numbers(caption)

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
        """Returns R@1, R@5 and R@10 in both directions, with their pools and chances.

        The pools are all images and all different captions of the examples; see `Retrieval`.
        `truncated` counts the captions that are longer than the text tower.
        """
        captions = [_captions(one) for one in examples]
        pool = sorted({caption for own in captions for caption in own})
        scores = self._scores(examples, pool)
        found = {
            "i2t": image_to_text(scores, captions, pool),
            "t2i": text_to_image(scores, captions, pool),
        }
        values = {
            f"{way}_{name}": value
            for way, each in found.items()
            for name, value in each.to_dict().items()
        }
        of_images = {"i2t": list(range(len(captions))), "t2i": first_images(captions, pool)}
        values["truncated"] = float(sum(map(self.text.is_longer, pool)))
        guesses = scores.argmax(axis=1).tolist()
        ranks = found["i2t"].ranks.tolist()
        drawings = [
            Drawing(row, captions[row][0], pool[guess], comment(rank, len(pool)))
            for row, (guess, rank) in enumerate(zip(guesses, ranks, strict=True))
        ]
        statistics = {
            f"{way}_recall_at_{k}": _recall(each.hits(k), of_images[way], len(captions))
            for way, each in found.items()
            for k in RECALLS
        }
        first, texts = _per_image(found["t2i"].hits(1), of_images["t2i"], len(captions))
        each = {"i2t_rank": ranks, "t2i_first": first.tolist(), "texts": texts.tolist()}
        return Measurement(values, each, drawings, statistics)

    def _scores(self, examples: Examples, pool: Sequence[str]) -> Array:
        """Returns the similarities of images and captions, (images, captions)."""
        device = self.device
        images = torch.cat([self.images(batch) for _, batch in examples.batches(device)])
        numbers = torch.from_numpy(np.stack([self.text.numbers(text) for text in pool])).to(device)
        texts = torch.cat([self.texts(part) for part in torch.split(numbers, examples.batch_size)])
        similar: Array = (images @ texts.T).cpu().numpy()
        return similar


def _captions(labelled: Labelled) -> tuple[str, ...]:
    if isinstance(labelled, LabelledClip) or not labelled.captions:
        raise ValueError("A clip, or an image without captions; allowed: images with captions.")
    return labelled.captions


def first_images(captions: Sequence[Sequence[str]], pool: Sequence[str]) -> list[int]:
    """Returns the number of the first image that has each text of the pool."""
    first: dict[str, int] = {}
    for number, own in enumerate(captions):
        for caption in own:
            first.setdefault(caption, number)
    return [first[text] for text in pool]


def _recall(hits: ArrayLike, images: Sequence[int], count: int) -> Statistic:
    """Returns the recall as a statistic of `count` images; the pool stays as it is.

    Args:
        hits: (Q,) outcome of each query.
        images: (Q,) the image that each query belongs to.
        count: Number of images.
    """
    return mean_over_images(*_per_image(hits, images, count))


def _per_image(hits: ArrayLike, images: Sequence[int], count: int) -> tuple[Array, Array]:
    """Returns the numbers of hits and of queries of each image, (count,) each; see `_recall`."""
    found: Array = np.bincount(images, np.asarray(hits, np.float64), minlength=count)
    return found, np.bincount(images, minlength=count).astype(np.float64)


def comment(rank: int, pool: int) -> str:
    """Returns a sentence on the wrong captions before the first right one."""
    if not rank:
        return "Right."
    return f"Wrong: {rank} of {pool} captions are before the first right one."
