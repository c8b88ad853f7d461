"""Oriented boxes as the 12 numbers that a network predicts, and their corners."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.images.boxes import CORNER_SIGNS
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
    first, second = numbers[..., 3:6], numbers[..., 6:9]
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
