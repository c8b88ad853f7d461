"""Losses of detectors, and the assignment of predictions to objects.

A network predicts an oriented box as 12 numbers. The losses are focal, of corners, of numbers,
and the generalised IoU in the image. The Hungarian method assigns predictions to objects by costs
of the same kinds; it requires scipy, see the extra `perception`.
"""

from itertools import permutations, product
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, Range, unknown_name
from stringline.datasets.images.labelled_image import CORNER_SIGNS
from stringline.encoders.positions.precision import at_least_float32

NUMBERS = 12
SizeScale = Literal["softplus", "exp"]
"""The function from a number of a network to a side length."""
SIZE_SCALES: tuple[SizeScale, ...] = ("softplus", "exp")


class Boxes(NamedTuple):
    """Oriented boxes; a point c of the cube [-1/2, 1/2]^3 lies at centre + R (size * c).

    Attributes:
        centre: (..., 3) in metres.
        rotation: (..., 3, 3), the columns are the axes of the box.
        size: (..., 3), side lengths along these axes in metres, above 0.
    """

    centre: Tensor
    rotation: Tensor
    size: Tensor


def boxes_from_numbers(numbers: Tensor, sizes: SizeScale = "softplus") -> Boxes:
    """Returns the boxes of predicted numbers, in float32 at least.

    The format of STRING (Schenck et al., 2025, F.2.1): translation (3), the first two columns of R
    (6), sizes (3). The columns need not be orthonormal: Gram-Schmidt makes a rotation of them
    (Y. Zhou et al., "On the continuity of rotation representations in neural networks", CVPR
    2019, arXiv 1812.07035, equation 15). Departure: STRING predicts the side lengths themselves,
    which may become negative; here they are a positive function of the numbers.

    Args:
        numbers: (..., 12). The columns must not be parallel or zero: such boxes are NaN. A network
            whose last layer starts at zero therefore needs a bias, such as `numbers_from_boxes` of
            a typical box.
        sizes: "softplus" for log(1 + e^x), which is linear in the length of large boxes, or "exp",
            with which a difference of numbers is a ratio of lengths.
    """
    numbers = at_least_float32(_checked(numbers))
    first = numbers[..., 3:6]
    second = numbers[..., 6:9]
    x = first / first.norm(dim=-1, keepdim=True)
    rest = second - (x * second).sum(-1, keepdim=True) * x
    y = rest / rest.norm(dim=-1, keepdim=True)
    rotation = torch.stack((x, y, torch.linalg.cross(x, y)), dim=-1)
    return Boxes(numbers[..., :3], rotation, positive_sizes(numbers[..., 9:], sizes))


def numbers_from_boxes(
    centre: Tensor, rotation: Tensor, size: Tensor, sizes: SizeScale = "softplus"
) -> Tensor:
    """Returns the numbers (..., 12) from which `boxes_from_numbers` makes these boxes."""
    _check_scale(sizes)
    # log(e^s - 1), which does not overflow for large s.
    scaled = size.log() if sizes == "exp" else size + torch.log(-torch.expm1(-size))
    return torch.cat((centre, *_columns(rotation), scaled), dim=-1)


def positive_sizes(numbers: Tensor, sizes: SizeScale) -> Tensor:
    """Returns the side lengths of numbers of the same shape."""
    _check_scale(sizes)
    return numbers.exp() if sizes == "exp" else functional.softplus(numbers)


def published_numbers(numbers: Tensor, sizes: SizeScale = "softplus") -> Tensor:
    """Returns predicted numbers with side lengths in metres, as STRING's L1 loss compares them.

    The columns stay as predicted, so the loss also pulls them towards unit length.
    """
    numbers = at_least_float32(_checked(numbers))
    return torch.cat((numbers[..., :9], positive_sizes(numbers[..., 9:], sizes)), dim=-1)


def published_numbers_of_boxes(boxes: Boxes) -> Tensor:
    """Returns translation, first two columns of R and side lengths, (..., 12)."""
    return torch.cat((boxes.centre, *_columns(boxes.rotation), boxes.size), dim=-1)


def corners(centre: Tensor, rotation: Tensor, size: Tensor) -> Tensor:
    """Returns the corners (..., 8, 3), in the order of `datasets/images/boxes.CORNER_SIGNS`."""
    signs = torch.as_tensor(CORNER_SIGNS, dtype=size.dtype, device=size.device)
    offsets = signs / 2 * size[..., None, :]
    # Products and sums: TF32 or autocast would round a matmul to millimetres.
    return centre[..., None, :] + (rotation[..., None, :, :] * offsets[..., None, :]).sum(-1)


def _columns(rotation: Tensor) -> tuple[Tensor, Tensor]:
    return rotation[..., 0], rotation[..., 1]


def _checked(numbers: Tensor) -> Tensor:
    if numbers.shape[-1:] != (NUMBERS,):
        raise ValueError(
            f"Numbers of boxes have the shape {tuple(numbers.shape)}; allowed: (..., {NUMBERS})."
        )
    return numbers


def _check_scale(sizes: str) -> None:
    if sizes not in SIZE_SCALES:
        raise unknown_name("scale of sizes", sizes, SIZE_SCALES)


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
        weight: (...) factor of the six lengths, see `size_weight`; if None, 1.
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


Indices = NDArray[np.intp]


def match(cost: Tensor | NDArray[np.floating]) -> tuple[Indices, Indices]:
    """Returns the assignment of rows to columns with the smallest sum of costs.

    H. W. Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics
    Quarterly 2 (1955), p. 83-97, by `scipy.optimize.linear_sum_assignment`.

    Args:
        cost: (N, M), such as predictions by objects.

    Returns:
        Row and column of each of the min(N, M) pairs, rows ascending.

    Raises:
        ValueError: A cost is NaN or infinite, or SciPy is not installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ValueError(
            "Matching needs SciPy, which is not installed. Run: pip install "
            '"stringline[perception]"'
        ) from error
    table = cost.detach().cpu().numpy() if isinstance(cost, Tensor) else np.asarray(cost)
    if table.ndim != 2:
        raise ValueError(f"The costs have the shape {table.shape}; allowed: (N, M).")
    wrong = int((~np.isfinite(table)).sum())
    if wrong:
        raise ValueError(
            f"{wrong} of {table.size} costs of matching are not finite. The predictions are not, "
            f"or a target is not."
        )
    rows, columns = linear_sum_assignment(table)
    return rows, columns


def match_batch(cost: Tensor, counts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Matches the images of a batch after one transfer from the device.

    Args:
        cost: (B, N, M), predictions by objects.
        counts: Number of objects of each image, 0 to M; the other columns are padding.

    Returns:
        Image, prediction and object of each pair, on the device of the costs.

    Raises:
        ValueError: A cost is not finite, or there are more objects than predictions or columns.
    """
    if len(counts) != cost.shape[0] or max(counts, default=0) > min(cost.shape[1:]):
        raise ValueError(
            f"Costs of the shape {tuple(cost.shape)} for images of {counts} objects; allowed: one "
            f"count per image, of at most {min(cost.shape[1:])} objects."
        )
    tables = cost.detach().float().cpu().numpy()
    pairs = [match(table[:, :count]) for table, count in zip(tables, counts, strict=True)]
    found = [
        (image, row, column)
        for image, (rows, columns) in enumerate(pairs)
        for row, column in zip(rows, columns, strict=True)
    ]
    indices = torch.tensor(found, dtype=torch.long, device=cost.device).reshape(-1, 3)
    return indices[:, 0], indices[:, 1], indices[:, 2]


def class_cost(logits: Tensor, labels: Tensor, alpha: float = 0.3, gamma: float = 2.0) -> Tensor:
    """Returns OWL-ViT's cost of classes (..., N, M): the focal loss if present less if absent.

    Args:
        logits: (..., N, Q) of predictions for queries.
        labels: (..., M, Q), 1 for the queries that name an object, else 0.
        alpha: As for `focal_loss`.
        gamma: As for `focal_loss`.
    """
    present = focal_loss(logits, torch.ones_like(logits), alpha, gamma)
    absent = focal_loss(logits, torch.zeros_like(logits), alpha, gamma)
    difference = present - absent
    return difference @ labels.to(difference.dtype).mT


def box_cost(
    numbers: Tensor,
    target: Boxes,
    *,
    sizes: SizeScale = "softplus",
    symmetry: Symmetry = "none",
    weight: Tensor | None = None,
) -> Tensor:
    """Returns STRING's cost of boxes (..., N, M): L1 distance of 12 numbers plus that of corners.

    Args:
        numbers: (..., N, 12) predicted numbers.
        target: Boxes (..., M).
        sizes: The function from numbers to side lengths.
        symmetry: The labellings of the axes of which that with the nearest corners counts.
        weight: (..., M) factor of lengths, see `size_weight`; if None, 1.
    """
    numbers = numbers[..., :, None, :]
    target = Boxes(*(part.unsqueeze(-k) for part, k in zip(target, (3, 4, 3), strict=True)))
    predicted = boxes_from_numbers(numbers, sizes)
    if symmetry != "none":
        target = nearest_labelling(predicted, target, symmetry)
    weight = None if weight is None else weight.unsqueeze(-2)
    of_corners = corner_loss(predicted, target)
    weighted = of_corners if weight is None else weight * of_corners
    return number_loss(numbers, target, sizes, weight) + weighted


def box_cost_2d(predicted: Tensor, target: Tensor) -> Tensor:
    """Returns OWL-ViT's cost of boxes in the image (..., N, M): L1 distance less generalised IoU.

    As in its code, this L1 distance is of centre, width and height; that of the loss is of corners.

    Args:
        predicted: (..., N, 4) centre x, y, width and height in shares of the image.
        target: (..., M, 4), the same.
    """
    first = predicted[..., :, None, :]
    second = target[..., None, :, :]
    distance = (first - second).abs().sum(-1)
    return distance - generalised_iou_2d(corners_2d(first), corners_2d(second))
