"""Detection of boxes in the image (OWL-ViT, Minderer et al., 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledImage, LabelledObject
from stringline.encoders.perception.average_precision import Detection
from stringline.encoders.perception.detection_losses import (
    box_cost_2d,
    corners_2d,
    generalised_iou_2d,
)
from stringline.encoders.perception.detector import Detector, DetectorSettings, image_bias
from stringline.encoders.perception.image_contract import ImageContract


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
