"""Detection of boxes in the image, and of oriented boxes in three dimensions.

The former are those of OWL-ViT (Minderer et al., 2022), the latter those of STRING (Schenck et al.,
2025, appendix F).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import (
    CORNER_SIGNS,
    Box3d,
    LabelledImage,
    LabelledObject,
)
from stringline.encoders.perception.average_precision import Detection
from stringline.encoders.perception.detection_losses import (
    LABELLINGS,
    NUMBERS,
    Boxes,
    Symmetry,
    box_cost,
    box_cost_2d,
    boxes_from_numbers,
    corner_loss,
    corners_2d,
    generalised_iou_2d,
    nearest_labelling,
    number_loss,
    size_weight,
)
from stringline.encoders.perception.detector import (
    Detector,
    DetectorSettings,
    image_bias,
    typical_box,
)
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.image_encoder import token_places


@dataclass(frozen=True, kw_only=True)
class Detector2dSettings(DetectorSettings):
    """Settings of a `Detector2d`.

    Attributes:
        number_weight: Weight of the L1 loss of the corners x0, y0, x1, y1.
        overlap_weight: Weight of the loss of the generalised IoU. The matching has both costs
            always.
    """

    number_weight: float = 1.0
    overlap_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        NOT_NEGATIVE.check(number_weight=self.number_weight, overlap_weight=self.overlap_weight)


class Detector2d(Detector):
    """Predicts centre, width and height in shares of the image, relative to each patch."""

    space = "2d"
    numbers = 4

    def __init__(self, settings: Detector2dSettings, contract: ImageContract) -> None:
        """Builds the network.

        Args:
            settings: Settings of the network.
            contract: What the images have; `names` are those of the objects.

        Raises:
            ValueError: There are no names, or the images are clips.
        """
        super().__init__(settings, contract)
        self.settings = settings

    def has_box(self, thing: LabelledObject) -> bool:
        """Returns whether the box of an object in the image is known."""
        return thing.box2d is not None

    def object_array(self, thing: LabelledObject, labelled: LabelledImage) -> Array:
        """Returns centre x, y, width and height in shares of the image of the contract."""
        assert thing.box2d is not None  # `visible` leaves the others out.
        to_contract = self.arrays.pixels(labelled.rgb.shape[:2])
        x0, y0, x1, y1 = _mapped(thing.box2d, to_contract)
        shares = np.array([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0])
        found: Array = shares / np.tile((self.contract.width, self.contract.height), 2)
        return found

    @property
    def box_size(self) -> int:
        """Length of `object_array`."""
        return 4

    def box_numbers(self, features: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns centre x, y, width and height (B, N, 4) in shares of the image."""
        tokenise = self.image_encoder.tokenise
        images, _ = tokenise.view(batch, self.contract.camera, ())
        bias = image_bias(images.shape[1], images.shape[2], tokenise.patch)
        return torch.sigmoid(self.box_head(features) + bias.to(features.device))

    def cost(self, numbers: Tensor, boxes: Tensor) -> Tensor:
        """Returns costs (B, N, M) of predicted for true boxes (B, M, 4)."""
        return box_cost_2d(numbers, boxes)

    def pair_loss(self, numbers: Tensor, boxes: Tensor) -> Tensor:
        """Returns the loss (P,) of pairs of predicted and true boxes."""
        predicted = corners_2d(numbers)
        target = corners_2d(boxes)
        distance = (predicted - target).abs().sum(dim=-1)
        overlap = 1 - generalised_iou_2d(predicted, target)
        return self.settings.number_weight * distance + self.settings.overlap_weight * overlap

    def detection(
        self, name: str, score: float, numbers: Tensor, labelled: LabelledImage
    ) -> Detection:
        """Returns a predicted object with its box in pixels of the labelled image."""
        shares = corners_2d(numbers).double().numpy()
        box = shares * np.tile((self.contract.width, self.contract.height), 2)
        back = np.linalg.inv(self.arrays.pixels(labelled.rgb.shape[:2]))
        return Detection(name=name, score=score, box2d=_mapped(box, back))

    def lines(self, thing: LabelledObject | Detection, labelled: LabelledImage) -> list[Array]:
        """Returns the outline of a box in pixels of the contract."""
        assert thing.box2d is not None
        to_contract = self.arrays.pixels(labelled.rgb.shape[:2])
        x0, y0, x1, y1 = _mapped(thing.box2d, to_contract)
        return [np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]])]


def _mapped(box: Array, pixels: Array) -> Array:
    """Returns x0, y0, x1, y1 after a map (3, 3) of pixels that scales and shifts."""
    corners: Array = np.asarray(box, np.float64).reshape(2, 2) * np.diag(pixels)[:2]
    return np.ravel(corners + pixels[:2, 2])


_NEAREST_M = 0.05

EDGES = [
    (first, second)
    for first, second in combinations(range(8), 2)
    if (CORNER_SIGNS[first] != CORNER_SIGNS[second]).sum() == 1
]
"""Corners of the 12 edges."""


def box_edges(box: Box3d, intrinsics: Array) -> list[Array]:
    """Returns the edges (2, 2) of a box in the camera frame as lines in pixels.

    Edges that reach behind a plane 5 cm in front of the camera are cut there.
    """
    corners = box.corners()
    lines = []
    for first, second in EDGES:
        ends = _in_front(corners[first], corners[second])
        if ends is not None:
            pixels = ends @ np.asarray(intrinsics, np.float64).T
            lines.append(pixels[:, :2] / pixels[:, 2:])
    return lines


def _in_front(first: Array, second: Array) -> Array | None:
    """Returns the part (2, 3) of a line in front of the camera; None if there is none."""
    ends = np.stack((first, second))
    depth = ends[:, 2] - _NEAREST_M
    if (depth <= 0).all():
        return None
    if (depth > 0).all():
        return ends
    share = depth[0] / (depth[0] - depth[1])
    cut = first + share * (second - first)
    return np.stack((first, cut) if depth[0] > 0 else (cut, second))


Places = Literal["relative", "absolute"]
PLACES = ("relative", "absolute")


@dataclass(frozen=True, kw_only=True)
class Detector3dSettings(DetectorSettings):
    """Settings of a `Detector3d`.

    Attributes:
        places: relative: boxes relative to the place of their patch; absolute: in the frame of all,
            as published.
        symmetry: Equal labellings of the axes of a box: none, as published; upright, about its
            third axis; all.
        relative_loss: Whether errors of lengths count relative to the size of the object, see
            `size_weight`, in loss and matching; otherwise in metres, as published.
        number_weight: Weight of the L1 loss of the 12 numbers.
        corner_weight: Weight of the loss of the 8 corners. The matching has both costs always.
        typical_side_m: Sides of the boxes at the beginning of the training, m.
        prior_depth_m: Depth of the place of a patch without depth, m.
    """

    places: Places = "relative"
    symmetry: Symmetry = "none"
    relative_loss: bool = False
    number_weight: float = 1.0
    corner_weight: float = 1.0
    typical_side_m: float = 0.5
    prior_depth_m: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        POSITIVE.check(typical_side_m=self.typical_side_m, prior_depth_m=self.prior_depth_m)
        NOT_NEGATIVE.check(number_weight=self.number_weight, corner_weight=self.corner_weight)
        if self.symmetry not in LABELLINGS:
            raise unknown_name("symmetry", self.symmetry, LABELLINGS)
        if self.places not in PLACES:
            raise unknown_name("choice of places", self.places, PLACES)


class Detector3d(Detector):
    """Predicts a box of 12 numbers for each patch."""

    space = "3d"
    numbers = NUMBERS
    typical: Tensor

    def __init__(self, settings: Detector3dSettings, contract: ImageContract) -> None:
        """Builds the network.

        Args:
            settings: Settings of the network.
            contract: What the images have; `names` are those of the objects.

        Raises:
            ValueError: There are no names or intrinsics, or the images are clips.
        """
        super().__init__(settings, contract)
        if not contract.geometry:
            raise ValueError("The images have no intrinsics, which 3D boxes need.")
        self.settings = settings
        self.register_buffer("typical", typical_box(settings.typical_side_m), persistent=False)
        dim = self.image_encoder.dim
        self.embed_place = (
            nn.Sequential(nn.Linear(3, dim), nn.GELU(), nn.Linear(dim, dim))
            if settings.places == "absolute"
            else None
        )

    def has_box(self, thing: LabelledObject) -> bool:
        """Returns whether the 3D box of an object is known."""
        return thing.box3d is not None

    def object_array(self, thing: LabelledObject, labelled: LabelledImage) -> Array:
        """Returns centre (3), rotation (9, by rows) and size (3) in the frame of the contract."""
        assert thing.box3d is not None  # `visible` leaves the others out.
        box = self.arrays.box(thing.box3d, labelled)
        return np.concatenate((box.centre, box.rotation.ravel(), box.size))

    @property
    def box_size(self) -> int:
        """Length of `object_array`."""
        return 15

    def box_numbers(self, features: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the numbers (B, N, 12) of the boxes in the frame of the contract."""
        places = token_places(self.image_encoder, batch, self.settings.prior_depth_m)
        if self.embed_place is not None:
            features = features + self.embed_place(places.to(features.dtype))
        found: Tensor = self.box_head(features) + self.typical
        if self.embed_place is not None:
            return found
        return torch.cat((found[..., :3] + places, found[..., 3:]), dim=-1)

    def cost(self, numbers: Tensor, boxes: Tensor) -> Tensor:
        """Returns costs (B, N, M) of predicted numbers for true boxes (B, M, 15)."""
        target = _boxes(boxes)
        return box_cost(
            numbers, target, symmetry=self.settings.symmetry, weight=self._weight(target)
        )

    def pair_loss(self, numbers: Tensor, boxes: Tensor) -> Tensor:
        """Returns the loss (P,) of pairs of predicted numbers and true boxes."""
        predicted = boxes_from_numbers(numbers)
        target = _boxes(boxes)
        weight = self._weight(target)
        if self.settings.symmetry != "none":
            target = nearest_labelling(predicted, target, self.settings.symmetry)
        corners = corner_loss(predicted, target)
        corners = corners if weight is None else weight * corners
        lengths = number_loss(numbers, target, weight=weight)
        return self.settings.corner_weight * corners + self.settings.number_weight * lengths

    def _weight(self, target: Boxes) -> Tensor | None:
        """Returns the weight of lengths."""
        if not self.settings.relative_loss:
            return None
        return size_weight(target, self.settings.typical_side_m)

    def detection(
        self, name: str, score: float, numbers: Tensor, labelled: LabelledImage
    ) -> Detection:
        """Returns a predicted object with its box in the camera frame."""
        centre, rotation, size = (each.double().numpy() for each in boxes_from_numbers(numbers))
        box = Box3d(centre, rotation, np.maximum(size, np.finfo(np.float32).tiny))
        back = np.linalg.inv(self.arrays.pose(labelled))
        return Detection(name=name, score=score, box3d=box.transformed(back))

    def lines(self, thing: LabelledObject | Detection, labelled: LabelledImage) -> list[Array]:
        """Returns the edges of a box in pixels of the contract."""
        assert labelled.intrinsics is not None
        assert thing.box3d is not None
        to_contract = self.arrays.pixels(labelled.rgb.shape[:2])
        return box_edges(thing.box3d, to_contract @ np.asarray(labelled.intrinsics, np.float64))


def _boxes(numbers: Tensor) -> Boxes:
    """Returns boxes of `Detector3d.object_array`."""
    rotation = numbers[..., 3:12].reshape(*numbers.shape[:-1], 3, 3)
    return Boxes(numbers[..., :3], rotation, numbers[..., 12:])
