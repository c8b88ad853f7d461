"""Two towers, of images and of texts, for retrieval in both directions.

They are trained with the sigmoid loss and measured by the recall of texts by images and of images
by texts.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import COUNT, Range, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.encoders.perception.classifier import POOLS, Pool, pooled
from stringline.encoders.perception.image_contract import ImageContract, Labelled
from stringline.encoders.perception.image_encoder import ImageEncoderFactory
from stringline.encoders.perception.perception_network import (
    Drawing,
    Examples,
    Measurement,
    PerceptionNetwork,
    Statistic,
    mean_over_images,
)
from stringline.encoders.perception.text_tower import TextTowerFactory
from stringline.encoders.positions.precision import at_least_float32, without_autocast

INITIAL_LOG_TEMPERATURE = math.log(10.0)
_BATCHES = Range(least=2, whole=True)


def sigmoid_loss(
    images: Tensor,
    texts: Tensor,
    log_temperature: Tensor | float,
    bias: Tensor | float,
    positives: Tensor | None = None,
) -> Tensor:
    """Returns the loss of a batch, a number.

    X. Zhai et al., "Sigmoid loss for language image pre-training", ICCV 2023, arXiv 2303.15343:
    -(1/n) sum_ij log sigmoid(z_ij (t x_i . y_j + b)) with z = 1 for pairs and -1 for others.

    Args:
        images: (n, d) outputs of the image tower, of any length above 0.
        texts: (n, d) outputs of the text tower.
        log_temperature: Logarithm of t.
        bias: b; `initial_bias` is its start.
        positives: (n, n) bool, which texts hold for which images; if None, text i holds for
            image i only.

    Raises:
        ValueError: The shapes differ.
    """
    n = images.shape[0]
    if images.shape != texts.shape or images.ndim != 2:
        raise ValueError(
            f"Images have the shape {tuple(images.shape)} and texts {tuple(texts.shape)}; allowed: "
            f"the same (n, d)."
        )
    if positives is None:
        positives = torch.eye(n, dtype=torch.bool, device=images.device)
    if positives.shape != (n, n) or positives.dtype != torch.bool:
        raise ValueError(
            f"positives are {positives.dtype} of the shape {tuple(positives.shape)}; allowed: bool "
            f"of the shape {(n, n)}."
        )
    with without_autocast(images):
        x = functional.normalize(at_least_float32(images), dim=-1)
        y = functional.normalize(at_least_float32(texts), dim=-1)
        logits = torch.as_tensor(log_temperature).exp() * (x @ y.mT) + bias
        signs = torch.where(positives, 1.0, -1.0).to(logits.dtype)
        return -functional.logsigmoid(signs * logits).sum() / n


def initial_bias(batch_size: int) -> float:
    """Returns -log(n - 1), at which the loss of random towers is smallest for n examples.

    The published -10 suits batches of 8,000 and more; with small ones the towers would first have
    to learn the bias.

    Raises:
        ValueError: A batch has fewer than two examples.
    """
    _BATCHES.check(batch_size=batch_size)
    return -math.log(batch_size - 1)


RECALLS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrieval:
    """The result of one direction.

    Attributes:
        ranks: (Q,) number of wrong entries that are ranked before the first right one, per query.
            Wrong entries of the same similarity come first, so a constant network finds nothing.
        right: (Q,) number of right entries in the pool, at least 1.
        pool: Number of entries that each query is ranked against.
    """

    ranks: NDArray[np.intp]
    right: NDArray[np.intp]
    pool: int

    def hits(self, k: int) -> NDArray[np.bool_]:
        """Returns whether a right entry is among the first k, (Q,)."""
        COUNT.check(k=k)
        return self.ranks < k

    def recall(self, k: int) -> float:
        """Returns R@k, the share of queries with a right entry among the first k."""
        return float(self.hits(k).mean())

    def chance(self, k: int) -> float:
        """Returns the expected R@k of a random order: k / pool with one right entry."""
        COUNT.check(k=k)
        missed = np.ones(len(self.right))
        for drawn in range(min(k, self.pool)):
            missed *= np.maximum(self.pool - self.right - drawn, 0) / (self.pool - drawn)
        return float(1 - missed.mean())

    def to_dict(self) -> dict[str, float]:
        """Returns pool, recalls and chances as plain JSON."""
        found: dict[str, float] = {"queries": len(self.ranks), "pool": self.pool}
        for k in RECALLS:
            found[f"recall_at_{k}"] = self.recall(k)
            found[f"chance_at_{k}"] = self.chance(k)
        return found


def image_to_text(
    similarities: ArrayLike, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> Retrieval:
    """Ranks the texts for each image; every text that is equal to one of its captions is right.

    Args:
        similarities: (N, M) of images and texts, such as cosines.
        captions: The captions of each image.
        texts: The pool.

    Raises:
        ValueError: The shapes differ, a similarity is not finite, or no text is right for an image.
    """
    table, right = _right(similarities, captions, texts)
    return _ranked(table, right, "image", [", ".join(each) for each in captions])


def text_to_image(
    similarities: ArrayLike, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> Retrieval:
    """Ranks the images for each text; every image with an equal caption is right.

    Args:
        similarities: (N, M) of images and texts, such as cosines.
        captions: The captions of each image; the images are the pool.
        texts: The queries.

    Raises:
        ValueError: The shapes differ, a similarity is not finite, or no image is right for a text.
    """
    table, right = _right(similarities, captions, texts)
    return _ranked(table.T, right.T, "text", texts)


def _right(
    similarities: ArrayLike, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    table = np.asarray(similarities)
    if table.shape != (len(captions), len(texts)) or not table.size:
        raise ValueError(
            f"The similarities have the shape {table.shape} for {len(captions)} images and "
            f"{len(texts)} texts; allowed: (images, texts), at least one of both."
        )
    if not np.isfinite(table).all():
        raise ValueError("A similarity is not finite.")
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    kind = np.array([numbers[text] for text in texts])
    holds = np.zeros((len(captions), len(numbers)), bool)
    for row, each in zip(holds, captions, strict=True):
        row[[numbers[caption] for caption in each if caption in numbers]] = True
    return table, holds[:, kind]


def _ranked(
    table: NDArray[np.floating], right: NDArray[np.bool_], query: str, names: Sequence[str]
) -> Retrieval:
    without = np.flatnonzero(~right.any(axis=1))
    if len(without):
        raise ValueError(
            f"{len(without)} of {len(right)} queries have no right entry in the pool, the first is "
            f"the {query} {names[without[0]]!r}; leave them out."
        )
    best = np.where(right, table, -np.inf).max(axis=1, keepdims=True)
    ranks = (~right & (table >= best)).sum(axis=1)
    return Retrieval(ranks=ranks, right=right.sum(axis=1), pool=right.shape[1])


@dataclass(frozen=True, kw_only=True)
class TwoTowersSettings:
    """Settings of `TwoTowers`.

    Attributes:
        image_encoder: Factory of the image encoder.
        text: Factory of the text tower.
        width: Channels of the common space of images and texts.
        pool: What is read of an image: cls, the first register; or mean, the mean of the patches.
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
