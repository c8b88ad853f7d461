"""The base of detectors: one prediction per patch, named by texts, matched to the objects."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledClip, LabelledImage, LabelledObject
from stringline.encoders.perception.average_precision import Detection, Space
from stringline.encoders.perception.detection_losses import (
    NUMBERS,
    class_cost,
    focal_loss,
    match_batch,
    numbers_from_boxes,
)
from stringline.encoders.perception.detection_results import DetectionResults
from stringline.encoders.perception.image_contract import ImageContract, Labelled
from stringline.encoders.perception.image_encoder import EncodedImages, ImageEncoderFactory
from stringline.encoders.perception.perception_network import (
    Examples,
    Measurement,
    PerceptionNetwork,
)
from stringline.encoders.perception.text_tower import TextTowerFactory

_CLASS_STD = 1e-3  # Square root of OWL-ViT's variance of W, 1e-6.
_PRIOR = 0.01  # Initial probability of each name (Lin et al., 2017, section 4.1).


class ClassHead(nn.Module):
    """Logits of texts for each patch, as in OWL-ViT (Minderer et al., 2022, arXiv 2205.06230).

    z = (normalise(W x) . normalise(text) + shift(x)) (elu(scale(x)) + 1).
    """

    def __init__(self, dim: int, text_dim: int) -> None:
        """Builds the maps of patches with `dim` channels to texts with `text_dim`."""
        super().__init__()
        self.project = nn.Linear(dim, text_dim)
        nn.init.normal_(self.project.weight, std=_CLASS_STD)
        self.shift = nn.Linear(dim, 1)
        self.scale = nn.Linear(dim, 1)
        for layer in (self.shift, self.scale):
            nn.init.zeros_(layer.weight)
        for layer in (self.project, self.shift, self.scale):
            nn.init.zeros_(layer.bias)
        # Otherwise the loss of the many absent names would govern the first steps.
        nn.init.constant_(self.shift.bias, math.log(_PRIOR / (1 - _PRIOR)))

    def forward(self, patches: Tensor, texts: Tensor) -> Tensor:
        """Returns logits (B, N, Q) of patches (B, N, dim) for texts (Q, text_dim)."""
        found = functional.normalize(self.project(patches).float(), dim=-1)
        wanted = functional.normalize(texts.float(), dim=-1)
        scale = functional.elu(self.scale(patches).float()) + 1
        logits: Tensor = (found @ wanted.T + self.shift(patches).float()) * scale
        return logits


class BoxHead(nn.Module):
    """A perceptron of three layers with GELU after the first two; the last one starts at zero."""

    def __init__(self, dim: int, numbers: int) -> None:
        """Builds the layers of patches with `dim` channels to `numbers` per box."""
        super().__init__()
        last = nn.Linear(dim, numbers)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU(), last
        )

    def forward(self, patches: Tensor) -> Tensor:
        """Returns (B, N, numbers) of patches (B, N, dim), in float32."""
        found: Tensor = self.layers(patches)
        return found.float()


def typical_box(side_m: float) -> Tensor:
    """Returns the numbers (12,) of a cube at the origin with the axes of the frame."""
    side = torch.full((3,), side_m)
    made = numbers_from_boxes(torch.zeros(3), torch.eye(3), side)
    assert made.shape == (NUMBERS,)
    return made


def image_bias(height: int, width: int, patch: int) -> Tensor:
    """Returns the logits (N, 4) of boxes cx, cy, w, h of one patch each, in shares of the image.

    OWL-ViT's bias is the lower right corner of the patch; this one is its centre.
    """
    rows = height // patch
    columns = width // patch
    y = (torch.arange(rows) + 0.5) / rows
    x = (torch.arange(columns) + 0.5) / columns
    centres = torch.stack((x.repeat(rows), y.repeat_interleave(columns)), dim=-1)
    sizes = torch.tensor([1 / columns, 1 / rows]).expand(len(centres), -1)
    # A single patch would have an infinite logit.
    return torch.logit(torch.cat((centres, sizes), dim=-1), eps=1e-3)


NOTHING = -1
"""The name of a padded object."""


@dataclass(frozen=True, kw_only=True)
class DetectorSettings:
    """Settings of every detector.

    Attributes:
        image_encoder: Factory of the image encoder.
        text: Factory of the text tower, which encodes one query per name.
        objects: Objects per image in training; of more, as many are drawn.
        queries: Names per step: those of the batch, and others drawn from the vocabulary.
        least_pixels: Smallest area of an object in `segments` to be learned and measured; without
            segments, of its box in the image.
        class_weight: Weight of the focal loss, and of its cost in the matching.
    """

    image_encoder: ImageEncoderFactory
    text: TextTowerFactory
    objects: int = 12
    queries: int = 100
    least_pixels: int = 40
    class_weight: float = 1.0

    def __post_init__(self) -> None:
        COUNT.check(objects=self.objects, queries=self.queries, least_pixels=self.least_pixels)
        NOT_NEGATIVE.check(class_weight=self.class_weight)


@dataclass(frozen=True)
class Predictions:
    """What a detector says of a batch.

    Attributes:
        logits: (B, N, Q) of the queried names.
        numbers: (B, N, numbers) of the boxes.
    """

    logits: Tensor
    numbers: Tensor


class Detector(PerceptionNetwork):
    """OWL-ViT's detector (Minderer et al., 2022) on the image encoder of policies.

    Departure: all queries of a batch are the same, so each text is encoded once.
    """

    needs = frozenset({"names", "texts"})
    numbers: ClassVar[int]
    """Numbers per box."""
    space: ClassVar[Space]

    def __init__(self, settings: DetectorSettings, contract: ImageContract) -> None:
        """Builds the network.

        Args:
            settings: Settings of the network.
            contract: What the images have; `names` are those of the objects.

        Raises:
            ValueError: There are no names, or the images are clips.
        """
        super().__init__(settings.image_encoder, contract)
        if contract.frames > 1:
            raise ValueError(
                f"The clips have {contract.frames} frames; allowed: images, since detectors read "
                f"one frame."
            )
        if not contract.names:
            raise ValueError(
                "The training images have no objects with names; allowed: images with at least one."
            )
        self.objects = settings.objects
        self.queries = settings.queries
        self.least_pixels = settings.least_pixels
        self.class_weight = settings.class_weight
        self.number = {name: number for number, name in enumerate(contract.names)}
        self.text = settings.text(tokeniser=contract.tokeniser)
        self.merge = nn.LayerNorm(self.image_encoder.dim)
        self.class_head = ClassHead(self.image_encoder.dim, self.text.dim)
        self.box_head = BoxHead(self.image_encoder.dim, self.numbers)

    @abstractmethod
    def object_array(self, thing: LabelledObject, labelled: LabelledImage) -> Array:
        """Returns the numbers of the true box of an object, in the frame of the contract."""

    @abstractmethod
    def box_numbers(self, features: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns numbers (B, N, numbers) of the boxes, of merged patches (B, N, dim)."""

    @abstractmethod
    def cost(self, numbers: Tensor, boxes: Tensor) -> Tensor:
        """Returns costs (B, N, M) of predicted numbers (B, N, ...) for true boxes (B, M, ...)."""

    @abstractmethod
    def pair_loss(self, numbers: Tensor, boxes: Tensor) -> Tensor:
        """Returns the loss (P,) of pairs of predicted numbers and true boxes."""

    @abstractmethod
    def detection(
        self, name: str, score: float, numbers: Tensor, labelled: LabelledImage
    ) -> Detection:
        """Returns a predicted object with its box as the labels of an image have it."""

    @abstractmethod
    def lines(self, thing: LabelledObject | Detection, labelled: LabelledImage) -> list[Array]:
        """Returns the box of an object as lines in pixels of the contract."""

    @abstractmethod
    def has_box(self, thing: LabelledObject) -> bool:
        """Returns whether the box of an object is known."""

    def check(self, labelled: Labelled) -> None:
        """Checks that an image can be an example; see `PerceptionNetwork.check`."""
        super().check(labelled)
        for name in {thing.name for thing in _image(labelled).objects}:
            self.text.numbers(name)

    def has_targets(self, labelled: Labelled) -> bool:
        """Returns whether an image has an object to learn and to measure."""
        return bool(self.visible(_image(labelled)))

    @property
    def target(self) -> str:
        """Description of a target, for messages."""
        return f"an object with a box and at least {self.least_pixels} pixels (least_pixels)"

    def targets(self, labelled: Labelled, generator: np.random.Generator) -> dict[str, Array]:
        """Returns the objects, drawn if there are more than `objects`, padded by `NOTHING`."""
        image = _image(labelled)
        chosen = [thing for thing in self.visible(image) if thing.name in self.number]
        if len(chosen) > self.objects:
            drawn = generator.permutation(len(chosen))[: self.objects]
            chosen = [chosen[place] for place in sorted(drawn.tolist())]
        names = np.full(self.objects, NOTHING, np.int64)
        names[: len(chosen)] = [self.number[thing.name] for thing in chosen]
        # Padding has an extent, so that no cost of it is NaN.
        boxes = np.ones((self.objects, self.box_size), np.float32)
        for row, thing in zip(boxes, chosen, strict=False):
            row[:] = self.object_array(thing, image)
        return {"names": names, "boxes": boxes}

    @property
    @abstractmethod
    def box_size(self) -> int:
        """Length of `object_array`."""

    def visible(self, image: LabelledImage) -> list[LabelledObject]:
        """Returns the objects with a box and enough pixels."""
        if image.segments is None:
            areas = [_area(thing) for thing in image.objects]
        else:
            counted = np.bincount(image.segments.ravel(), minlength=len(image.objects) + 1)
            areas = counted[1:].tolist()
        return [
            thing
            for thing, area in zip(image.objects, areas, strict=True)
            if area >= self.least_pixels and self.has_box(thing)
        ]

    def predict(self, batch: Mapping[str, Tensor], names: Sequence[str]) -> Predictions:
        """Returns the predictions of a batch for names, known from training or not."""
        features = self.merged(self.image_encoder(batch))
        logits: Tensor = self.class_head(features, self.text.features(names))
        return Predictions(logits, self.box_numbers(features, batch))

    def merged(self, encoded: EncodedImages) -> Tensor:
        """Returns patches (B, N, dim), multiplied by CLS if there is one, and normalised."""
        patches = encoded.tokens.features[:, self.image_encoder.tokenise.prefix :]
        if encoded.registers.shape[1]:
            patches = patches * encoded.registers[:, :1]
        merged: Tensor = self.merge(patches)
        return merged

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the loss of names and boxes, divided by the objects of each image, then averaged.

        An image without objects has the loss of names only.
        """
        queried = self._queried(batch["names"])
        names = [self.contract.names[number] for number in queried]
        found = self.predict(batch, names)
        is_named = batch["names"].unsqueeze(-1) == torch.tensor(queried, device=self.device)
        counts = (batch["names"] != NOTHING).sum(dim=1)
        weights = 1 / counts.clamp(min=1).float()
        cost = self.class_weight * class_cost(found.logits, is_named)
        cost = cost + self.cost(found.numbers, batch["boxes"])
        images, rows, columns = match_batch(cost.detach(), counts.tolist())
        wanted = torch.zeros_like(found.logits)
        wanted[images, rows] = is_named[images, columns].to(wanted.dtype)
        of_names = focal_loss(found.logits, wanted).sum((1, 2)) * weights
        pairs = self.pair_loss(found.numbers[images, rows], batch["boxes"][images, columns])
        of_boxes = (pairs * weights[images]).sum() / len(counts)
        return self.class_weight * of_names.mean() + of_boxes

    @torch.no_grad()
    def measure(self, examples: Examples) -> Measurement:
        """Returns `mean_iou` and average precisions, see `DetectionResults`.

        The queries are all names of the training and of the examples.
        """
        unknown = {
            thing.name for one in examples for thing in _image(one).objects
        } - self.number.keys()
        names = (*self.contract.names, *sorted(unknown))
        place = {name: number for number, name in enumerate(names)}
        results = DetectionResults(self, self.space, names)
        for images, batch in examples.batches(self.device):
            found = self.predict(batch, names)
            for row, labelled in enumerate(images):
                image = _image(labelled)
                wanted = self.visible(image)
                logits = found.logits[row].cpu()
                numbers = found.numbers[row].cpu()
                is_named = torch.zeros(len(wanted), len(names))
                is_named[range(len(wanted)), [place[thing.name] for thing in wanted]] = 1.0
                boxes = np.array([self.object_array(thing, image) for thing in wanted])
                true = torch.from_numpy(boxes.reshape(-1, self.box_size)).float()
                cost = self.class_weight * class_cost(logits, is_named)
                cost = cost + self.cost(numbers[None], true[None])[0]
                results.add(image, wanted, logits, numbers, cost)
        return results.measured(frozenset(self.contract.names))

    def _queried(self, names: Tensor) -> list[int]:
        """Returns the names of a batch, and others up to `queries`, drawn while training."""
        known = len(self.contract.names)
        if known <= self.queries:
            return list(range(known))
        own = sorted(set(names.flatten().tolist()) - {NOTHING})
        others = torch.randperm(known) if self.training else torch.arange(known)
        rest = [number for number in others.tolist() if number not in own]
        return [*own, *rest[: max(0, self.queries - len(own))]]


def _area(thing: LabelledObject) -> float:
    if thing.box2d is None:
        return float("inf")
    x0, y0, x1, y1 = thing.box2d
    return float((x1 - x0) * (y1 - y0))


def _image(labelled: Labelled) -> LabelledImage:
    if isinstance(labelled, LabelledClip):
        raise ValueError("A detector got a clip; allowed: images.")
    return labelled
