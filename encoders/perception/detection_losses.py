"""Losses of detectors: focal, corners, numbers, and the generalised IoU in the image."""

from itertools import permutations, product
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, Range, unknown_name
from stringline.datasets.images.boxes import CORNER_SIGNS
from stringline.encoders.perception.box_numbers import (
    Boxes,
    SizeScale,
    corners,
    published_numbers,
    published_numbers_of_boxes,
)
from stringline.encoders.positions.precision import at_least_float32

_SHARES = Range(least=0, most=1)
_LEAST_SIDE_M = 0.2


def cube_rotations() -> Tensor:
    """Returns the 24 rotations of the cube (24, 3, 3), the identity first.

    For each of these G, the box with the rotation R G and the sizes permuted by G is the same set
    of points.
    """
    signed = [
        torch.diag(torch.tensor(signs))[list(order)]
        for order in permutations(range(3))
        for signs in product((1.0, -1.0), repeat=3)
    ]
    return torch.stack([matrix for matrix in signed if torch.linalg.det(matrix) > 0])


def _corner_orders() -> Tensor:
    """Returns for each relabelling the old index of each new corner, (24, 8)."""
    signs = torch.as_tensor(CORNER_SIGNS, dtype=torch.float32)
    moved = signs @ cube_rotations().mT  # (24, 8, 3): the corner c of the new labels lies at G c.
    return (moved[:, :, None] == signs).all(-1).int().argmax(-1)


ROTATIONS = cube_rotations()
CORNER_ORDERS = _corner_orders()
Symmetry = Literal["none", "upright", "all"]
"""Labellings of the axes of a box that count as equal: one; 4 about its third axis; all 24."""
LABELLINGS: dict[Symmetry, Tensor] = {
    "none": torch.arange(1),
    "upright": torch.nonzero(ROTATIONS[:, 2, 2] == 1).flatten(),
    "all": torch.arange(len(ROTATIONS)),
}


def focal_loss(logits: Tensor, targets: Tensor, alpha: float = 0.3, gamma: float = 2.0) -> Tensor:
    """Returns the focal sigmoid loss of each logit.

    T.-Y. Lin et al., "Focal loss for dense object detection", ICCV 2017, arXiv 1708.02002, equation
    5, with the constants of OWL-ViT (Minderer et al., 2022). OWL-ViT sums it over tokens and
    queries, divides by the number of labels of the image and averages over images.

    Args:
        logits: (...).
        targets: The same shape, 1 where the class is present, else 0.
        alpha: Weight of present classes, 0 to 1; absent ones have 1 - alpha.
        gamma: Exponent of the probability of the wrong answer, 0 or above.

    Returns:
        The losses in float32 at least, of the shape of the logits.
    """
    _SHARES.check(alpha=alpha)
    NOT_NEGATIVE.check(gamma=gamma)
    logits = at_least_float32(logits)
    targets = targets.to(logits.dtype)
    signs = 2 * targets - 1
    wrong = torch.sigmoid(-signs * logits)
    weights = alpha * targets + (1 - alpha) * (1 - targets)
    return -weights * wrong**gamma * functional.logsigmoid(signs * logits)


def corner_loss(predicted: Boxes, target: Boxes, *, symmetry: Symmetry = "none") -> Tensor:
    """Returns the sum over the 8 corners of the L1 distance between boxes, in metres.

    STRING's loss (Schenck et al., 2025, F.2.2) in place of the IoU. Its order of corners is fixed,
    so a table that is turned by 180 degrees has a loss although its box is the same.

    Args:
        predicted: Boxes of a shape (...).
        target: Boxes of a shape that broadcasts with it.
        symmetry: The labellings of the axes of the target over which the minimum is taken. With
            "all", the loss of boxes with the same corners is 0; with "upright", that of those with
            the same third axis, such as furniture in a frame with z up.
    """
    return _relabelled_distances(corners(*predicted), corners(*target), symmetry).amin(-1)


def nearest_labelling(predicted: Boxes, target: Boxes, symmetry: Symmetry = "all") -> Boxes:
    """Returns the target boxes with the axes labelled so that `corner_loss` is smallest."""
    with torch.no_grad():
        found, wanted = corners(*predicted), corners(*target)
        best = _relabelled_distances(found, wanted, symmetry).argmin(-1)
    labellings = LABELLINGS[symmetry].to(best.device)
    rotations = ROTATIONS.to(target.rotation)[labellings[best]]
    size = (rotations.abs().mT @ target.size[..., None])[..., 0]
    return Boxes(target.centre.expand_as(size), target.rotation @ rotations, size)


def size_weight(target: Boxes, typical_side_m: float) -> Tensor:
    """Returns the weight of lengths of a box, `typical_side_m` over its mean side, (...).

    It makes an error of a tenth of the side equal for small and for large objects, up to that of
    boxes with sides of 0.2 m, beyond which depth is too coarse.
    """
    return typical_side_m / target.size.mean(dim=-1).clamp(min=_LEAST_SIDE_M)


def number_loss(
    numbers: Tensor,
    target: Boxes,
    sizes: SizeScale = "softplus",
    weight: Tensor | None = None,
) -> Tensor:
    """Returns the sum of the absolute differences of the 12 numbers.

    STRING's L1 loss "directly on the 12D prediction vector" (Schenck et al., 2025, F.2.2): side
    lengths in metres, columns of R as predicted.

    Args:
        numbers: (..., 12), as for `boxes_from_numbers`.
        target: Boxes of a shape that broadcasts with it; with symmetric corners those of
            `nearest_labelling`.
        sizes: The function from numbers to side lengths.
        weight: (...) factor of the six lengths, see `size_weight`; None: 1.
    """
    difference = published_numbers(numbers, sizes) - published_numbers_of_boxes(target)
    if weight is None:
        return difference.abs().sum(-1)
    lengths = difference[..., :3].abs().sum(-1) + difference[..., 9:].abs().sum(-1)
    return weight * lengths + difference[..., 3:9].abs().sum(-1)


def generalised_iou_2d(first: Tensor, second: Tensor) -> Tensor:
    """Returns the generalised IoU of boxes in the image, from -1 to 1.

    H. Rezatofighi et al., "Generalized intersection over union", CVPR 2019, arXiv 1902.09630: IoU
    less the share of the smallest enclosing box that the union leaves free. The loss is 1 less it.

    Args:
        first: (..., 4) corners x0, y0, x1, y1 with x0 <= x1 and y0 <= y1.
        second: The same, of a shape that broadcasts with it; one of the two has an area.
    """
    first = at_least_float32(first)
    second = at_least_float32(second)
    low = torch.maximum(first[..., :2], second[..., :2])
    high = torch.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    union = _areas(first) + _areas(second) - shared
    around_low = torch.minimum(first[..., :2], second[..., :2])
    around_high = torch.maximum(first[..., 2:], second[..., 2:])
    around = (around_high - around_low).prod(-1)
    return shared / union - (around - union) / around


def corners_2d(boxes: Tensor) -> Tensor:
    """Returns x0, y0, x1, y1 of boxes (..., 4) given as centre x, y, width and height."""
    centre = boxes[..., :2]
    half = boxes[..., 2:] / 2
    return torch.cat((centre - half, centre + half), dim=-1)


def _areas(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).prod(-1)


def _relabelled_distances(found: Tensor, wanted: Tensor, symmetry: Symmetry) -> Tensor:
    """Returns the L1 distances (..., K) of corners for each labelling of the wanted ones."""
    if symmetry not in LABELLINGS:
        raise unknown_name("symmetry", symmetry, LABELLINGS)
    orders = CORNER_ORDERS[LABELLINGS[symmetry]].to(wanted.device)
    if symmetry != "all":
        return (found[..., None, :, :] - wanted[..., orders, :]).abs().sum((-2, -1))
    # All pairs of corners are fewer than the corners of all labellings.
    pairs = (found[..., :, None, :] - wanted[..., None, :, :]).abs().sum(-1)  # (..., 8, 8)
    return pairs[..., torch.arange(8, device=pairs.device), orders].sum(-1)
