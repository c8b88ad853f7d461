"""Classification of images and of clips, and its measures.

The measures are accuracies: of all images, by class, and within pairs of classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import SHARE, Range, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.encoders.perception.image_contract import ImageContract, Labelled
from stringline.encoders.perception.image_encoder import EncodedImages, ImageEncoderFactory
from stringline.encoders.perception.perception_network import (
    Drawing,
    Examples,
    Measurement,
    PerceptionNetwork,
    mean_over_images,
)

Labels = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Classification:
    """Predicted classes of images or clips.

    Attributes:
        predicted: (N,) the class with the largest logit; of equal ones the first.
        labels: (N,) the true class.
        classes: Number of classes.
    """

    predicted: Labels
    labels: Labels
    classes: int

    @property
    def outcomes(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, (N,)."""
        found: NDArray[np.bool_] = self.predicted == self.labels
        return found

    @property
    def top_1(self) -> float:
        """Share of right predictions."""
        return float(self.outcomes.mean())

    @property
    def chance(self) -> float:
        """Share of the most frequent class, the best that a constant prediction reaches."""
        return float(np.bincount(self.labels).max() / len(self.labels))


def classified(logits: ArrayLike, labels: ArrayLike) -> Classification:
    """Returns the predictions of logits (N, C) for true classes (N,).

    Raises:
        ValueError: The shapes differ, a logit is not finite, or a label is not one of the classes.
    """
    table, true = _checked(logits, labels)
    return Classification(predicted=table.argmax(axis=1), labels=true, classes=table.shape[1])


def within_pairs(logits: ArrayLike, labels: ArrayLike, partners: ArrayLike) -> NDArray[np.bool_]:
    """Returns whether the true class has a larger logit than its partner, (N,).

    For motions of which each is another's reversal: a single frame is at chance, 50 %. Equal logits
    are wrong.

    Args:
        logits: (N, C).
        labels: (N,) true classes.
        partners: (C,) the other class of each pair.

    Raises:
        ValueError: As for `classified`, or the partner of a partner is another class.
    """
    table, true = _checked(logits, labels)
    other = np.asarray(partners)
    classes = np.arange(table.shape[1])
    if other.shape != classes.shape or not np.isin(other, classes).all():
        raise ValueError(
            f"The partners are {other.tolist()}; allowed: one of {len(classes)} classes for each."
        )
    if (other[other] != classes).any() or (other == classes).any():
        raise ValueError(f"The partners are {other.tolist()}; allowed: pairs of two classes.")
    rows = np.arange(len(true))
    found: NDArray[np.bool_] = table[rows, true] > table[rows, other[true]]
    return found


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating], Labels]:
    table = np.asarray(logits)
    true = np.asarray(labels)
    if table.ndim != 2 or true.shape != table.shape[:1] or not table.size:
        raise ValueError(
            f"The logits have the shape {table.shape} and the labels {true.shape}; allowed: (N, C) "
            f"and (N,), at least one of both."
        )
    if not np.isfinite(table).all():
        raise ValueError("A logit is not finite.")
    labels_of = Range(least=0, most=table.shape[1] - 1, whole=True)
    for extreme in (true.min(), true.max()):
        labels_of.check(label=int(extreme))
    return table, true.astype(np.intp)


Pool = Literal["cls", "mean"]
POOLS = ("cls", "mean")


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """Settings of a `Classifier`.

    Attributes:
        image_encoder: Factory of the image encoder.
        pool: What the head reads: `cls`, the first register, or `mean`, the mean of the patches.
        label_smoothing: Probability that the targets give to all classes alike, 0 to below 1.
    """

    image_encoder: ImageEncoderFactory
    pool: Pool = "cls"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        SHARE.check(label_smoothing=self.label_smoothing)
        if self.pool not in POOLS:
            raise unknown_name("pool", self.pool, POOLS)


def pooled(encoded: EncodedImages, pool: Pool) -> Tensor:
    """Returns a feature vector of each image, (B, dim).

    Raises:
        ValueError: CLS is to be read from an encoder without registers.
    """
    if pool == "mean":
        features = encoded.tokens.features
        present = encoded.tokens.present
        if present is None:
            return features.mean(dim=1)
        inside = present.unsqueeze(-1).to(features.dtype)
        return (features * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
    if not encoded.registers.shape[1]:
        raise ValueError("pool is 'cls' and registers is 0; allowed: registers from 1, or 'mean'.")
    return encoded.registers[:, 0]


class Classifier(PerceptionNetwork):
    """A linear map of CLS or of the mean patch, trained by cross entropy."""

    needs = frozenset({"labels"})

    def __init__(self, settings: ClassifierSettings, contract: ImageContract) -> None:
        """Builds the network.

        Args:
            settings: Settings of the network.
            contract: What the images have; `names` are the classes.

        Raises:
            ValueError: There are fewer than two classes.
        """
        super().__init__(settings.image_encoder, contract)
        if len(contract.names) < 2:
            raise ValueError(f"The classes are {list(contract.names)}; allowed: at least two.")
        self.pool: Pool = settings.pool
        self.label_smoothing = settings.label_smoothing
        self.number = {name: number for number, name in enumerate(contract.names)}
        self.head = nn.Linear(self.image_encoder.dim, len(contract.names))

    def targets(self, labelled: Labelled, generator: np.random.Generator) -> dict[str, Array]:
        """Returns the number of the class."""
        return {"label": np.asarray(self._class(labelled), np.int64)}

    def logits(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the logits of the classes, (B, classes)."""
        logits: Tensor = self.head(pooled(self.image_encoder(batch), self.pool))
        return logits

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the cross entropy."""
        return functional.cross_entropy(
            self.logits(batch).float(), batch["label"], label_smoothing=self.label_smoothing
        )

    @torch.no_grad()
    def measure(self, examples: Examples) -> Measurement:
        """Returns `top1`, the share of right classes, and `chance`, that of the largest class.

        For clips whose classes are all reversals of each other also `within_pair`, the share of
        clips whose class has a larger logit than its reversal.
        """
        logits = torch.cat(
            [self.logits(batch).float().cpu() for _, batch in examples.batches(self.device)]
        ).numpy()
        truth = np.array([self._class(one) for one in examples])
        found = classified(logits, truth)
        each = {"correct": found.outcomes.astype(float).tolist()}
        values = {"top1": found.top_1, "chance": found.chance, "classes": float(found.classes)}
        statistics = {"top1": mean_over_images(each["correct"])}
        if (partners := self._partners(examples)) is not None:
            right = within_pairs(logits, truth, partners)
            each["within_pair"] = right.astype(float).tolist()
            values["within_pair"] = float(right.mean())
            statistics["within_pair"] = mean_over_images(right)
        names = self.contract.names
        drawings = [
            Drawing(number, names[true], names[chosen], comment(logits[number], int(true)))
            for number, (true, chosen) in enumerate(zip(truth, found.predicted, strict=True))
        ]
        return Measurement(values, each, drawings, statistics)

    def _class(self, labelled: Labelled) -> int:
        """Returns the number of a class."""
        if labelled.label not in self.number:
            raise unknown_name(
                "class among those of the training", str(labelled.label), self.number
            )
        return self.number[labelled.label]

    def _partners(self, examples: Examples) -> list[int] | None:
        """Returns the reversal of each class of motions; None means a class has none."""
        reversals = {
            one.label: one.reverse_label for one in examples if isinstance(one, LabelledClip)
        }
        partners = [self.number.get(reversals.get(name) or "") for name in self.contract.names]
        known = [partner for partner in partners if partner is not None]
        return known if len(known) == len(partners) else None


def comment(logits: Array, true: int) -> str:
    """Returns a sentence on the place of the true class among all, by logits (classes,)."""
    before = int((logits > logits[true]).sum())
    if not before:
        return "Right."
    return f"Wrong: the true class is number {before + 1} of {len(logits)}."
