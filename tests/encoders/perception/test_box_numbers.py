"""Numbers of boxes round-trip, and always give a box."""

import numpy as np
import pytest
import torch
from tests.encoders.perception.box_draws import as_tensors, boxes

from stringline.datasets.images.labelled_image import Box3d
from stringline.encoders.perception.detection_losses import (
    SizeScale,
    boxes_from_numbers,
    corners,
    numbers_from_boxes,
    published_numbers,
    published_numbers_of_boxes,
)

BOTH = pytest.mark.parametrize("sizes", ["softplus", "exp"])


@BOTH
def test_numbers_give_the_boxes_back(sizes: SizeScale) -> None:
    batch = as_tensors(boxes(100))
    numbers = numbers_from_boxes(*batch, sizes)
    assert numbers.shape == (100, 12)
    for found, expected in zip(boxes_from_numbers(numbers, sizes), batch, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(published_numbers(numbers, sizes), published_numbers_of_boxes(batch))


@BOTH
def test_any_numbers_give_a_valid_box(sizes: SizeScale) -> None:
    numbers = 3 * torch.randn(200, 12, generator=torch.Generator().manual_seed(0)).double()
    for one in zip(*boxes_from_numbers(numbers, sizes), strict=True):
        Box3d(*(part.numpy() for part in one))  # Raises for a box without volume or right angles.


def test_large_and_small_sides_stay_finite() -> None:
    centre = torch.zeros(3)
    size = torch.tensor([1e-4, 1.0, 500.0])
    numbers = numbers_from_boxes(centre, torch.eye(3), size)
    torch.testing.assert_close(boxes_from_numbers(numbers).size, size, rtol=1e-3, atol=0)


def test_the_length_of_the_columns_does_not_matter() -> None:
    numbers = numbers_from_boxes(*as_tensors(boxes(5)))
    longer = numbers.clone()
    longer[:, 3:6] *= 2
    longer[:, 6:9] = 3 * numbers[:, 6:9] - 5 * numbers[:, 3:6]
    torch.testing.assert_close(boxes_from_numbers(longer), boxes_from_numbers(numbers))


def test_parallel_columns_give_no_rotation() -> None:
    assert boxes_from_numbers(torch.zeros(12)).rotation.isnan().any()


def test_corners_are_those_of_the_contract() -> None:
    drawn = boxes(20)
    expected = np.stack([one.corners() for one in drawn])
    np.testing.assert_allclose(corners(*as_tensors(drawn)), expected, atol=1e-12)


def test_wrong_shapes_and_scales_are_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 11\); allowed: \(\.\.\., 12\)"):
        boxes_from_numbers(torch.zeros(2, 11))
    with pytest.raises(ValueError, match="no scale of sizes 'expo'. Did you mean 'exp'"):
        boxes_from_numbers(torch.zeros(2, 12), "expo")  # type: ignore[arg-type]
