"""Losses of detectors: known values, and invariance to the labels of a box's axes."""

import math

import pytest
import torch
from tests.encoders.perception.box_draws import as_tensors, boxes

from stringline.encoders.perception.detection_losses import (
    ROTATIONS,
    Boxes,
    corner_loss,
    corners,
    corners_2d,
    focal_loss,
    generalised_iou_2d,
    nearest_labelling,
    number_loss,
    numbers_from_boxes,
    published_numbers_of_boxes,
)


def relabelled(box: Boxes, rotation: torch.Tensor) -> Boxes:
    size = (rotation.abs().mT @ box.size[..., None])[..., 0]
    return Boxes(box.centre, box.rotation @ rotation, size)


def test_focal_loss_is_the_published_formula() -> None:
    logits = torch.linspace(-6, 6, 25, dtype=torch.float64)
    p = torch.sigmoid(logits)
    torch.testing.assert_close(
        focal_loss(logits, torch.ones(25)), -0.3 * (1 - p) ** 2 * p.log(), rtol=1e-9, atol=0
    )
    torch.testing.assert_close(
        focal_loss(logits, torch.zeros(25)), -0.7 * p**2 * (1 - p).log(), rtol=1e-9, atol=1e-12
    )
    # Without focus and with equal weights it is half of the cross entropy.
    targets = (logits > 1).double()
    torch.testing.assert_close(
        focal_loss(logits, targets, alpha=0.5, gamma=0),
        torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none") / 2,
    )


def test_focal_loss_and_gradient_stay_finite_at_large_logits() -> None:
    logits = torch.tensor([-200.0, 200.0], requires_grad=True)
    focal_loss(logits, torch.tensor([1.0, 0.0])).sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([-0.3, 0.7]))


def test_focal_loss_refuses_wrong_weights() -> None:
    with pytest.raises(ValueError, match=r"alpha must be a number from 0 to 1 \(got 1.5\)"):
        focal_loss(torch.zeros(1), torch.zeros(1), alpha=1.5)


def test_there_are_24_different_rotations_of_the_cube() -> None:
    assert len({tuple(rotation.flatten().tolist()) for rotation in ROTATIONS}) == 24
    torch.testing.assert_close(ROTATIONS @ ROTATIONS.mT, torch.eye(3).expand(24, 3, 3))
    torch.testing.assert_close(ROTATIONS[0], torch.eye(3))


def test_a_shifted_box_loses_its_shift_at_each_corner() -> None:
    box = as_tensors(boxes(3))
    shifted = box._replace(centre=box.centre + torch.tensor([0.1, -0.2, 0.0]))
    torch.testing.assert_close(corner_loss(shifted, box), torch.full((3,), 8 * 0.3).double())


def test_relabelling_costs_the_published_loss_only() -> None:
    box = as_tensors(boxes(4))
    for rotation in ROTATIONS[1:].double():
        same = relabelled(box, rotation)
        moved = (corners(*same)[:, :, None] - corners(*box)[:, None]).norm(dim=-1)
        torch.testing.assert_close(moved.amin(-1), torch.zeros(4, 8).double())
        assert (corner_loss(same, box) > 0.1).all()
        assert (corner_loss(same, box, symmetry="all") < 1e-9).all()
        numbers = numbers_from_boxes(*same)
        assert (number_loss(numbers, box) > 0.1).all()
        assert (number_loss(numbers, nearest_labelling(same, box)) < 1e-9).all()


def test_the_symmetric_loss_is_the_minimum_over_relabelled_targets() -> None:
    predicted = as_tensors(boxes(6, 1))
    target = as_tensors(boxes(6, 2))
    each = [corner_loss(predicted, relabelled(target, g)) for g in ROTATIONS.double()]
    least = torch.stack(each).amin(0)
    torch.testing.assert_close(corner_loss(predicted, target, symmetry="all"), least)
    torch.testing.assert_close(corner_loss(predicted, nearest_labelling(predicted, target)), least)


def test_number_loss_is_the_l1_distance_of_the_published_numbers() -> None:
    predicted = as_tensors(boxes(6, 1))
    target = as_tensors(boxes(6, 2))
    expected = published_numbers_of_boxes(predicted) - published_numbers_of_boxes(target)
    for sizes in ("softplus", "exp"):
        numbers = numbers_from_boxes(*predicted, sizes)
        torch.testing.assert_close(number_loss(numbers, target, sizes), expected.abs().sum(-1))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([0, 0, 2, 2], 1.0),
        ([1, 0, 3, 2], 1 / 3),
        ([4, 0, 6, 2], -1 / 3),  # Disjoint: 4 of 12 lie between.
        ([0.5, 0.5, 1.5, 1.5], 0.25),
        ([1, 1, 3, 3], 1 / 7 - 2 / 9),
        ([1, 1, 1, 1], 0.0),
    ],
)
def test_generalised_iou_has_the_known_values(other: list[float], expected: float) -> None:
    box = torch.tensor([0.0, 0.0, 2.0, 2.0])
    found = generalised_iou_2d(box, torch.tensor(other, dtype=torch.float32))
    assert math.isclose(found, expected, abs_tol=1e-6)
    assert math.isclose(generalised_iou_2d(torch.tensor(other), box), expected, abs_tol=1e-6)


def test_corners_in_the_image_follow_from_centre_and_size() -> None:
    found = corners_2d(torch.tensor([[0.5, 0.4, 0.2, 0.6]]))
    torch.testing.assert_close(found, torch.tensor([[0.4, 0.1, 0.6, 0.7]]))
