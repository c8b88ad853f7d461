"""The assignment of predictions to objects: costs, and the Hungarian method."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.encoders.perception.box_numbers import Boxes, SizeScale, boxes_from_numbers
from stringline.encoders.perception.detection_losses import (
    Symmetry,
    corner_loss,
    corners_2d,
    focal_loss,
    generalised_iou_2d,
    nearest_labelling,
    number_loss,
)

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
        weight: (..., M) factor of lengths, see `size_weight`; None: 1.
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
