"""The assignment of predictions to objects is the best one, and refuses costs without a value."""

from itertools import permutations

import numpy as np
import pytest
import torch
from tests.encoders.perception.box_draws import as_tensors, boxes

from stringline.encoders.perception.detection_losses import (
    Boxes,
    Symmetry,
    box_cost,
    box_cost_2d,
    boxes_from_numbers,
    class_cost,
    corner_loss,
    corners_2d,
    focal_loss,
    generalised_iou_2d,
    match,
    match_batch,
    nearest_labelling,
    number_loss,
    numbers_from_boxes,
    size_weight,
)


def test_no_other_assignment_costs_less() -> None:
    cost = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    rows, columns = match(cost)
    assert sorted(columns) == [0, 1, 2, 3]
    best = min(sum(cost[r, c] for c, r in enumerate(order)) for order in permutations(range(5), 4))
    assert cost[rows, columns].sum() == pytest.approx(best)


def test_costs_without_a_value_are_refused() -> None:
    with pytest.raises(ValueError, match="2 of 6 costs of matching are not finite"):
        match(torch.tensor([[0, 1, torch.nan], [torch.inf, 0, 1]]))
    with pytest.raises(ValueError, match=r"shape \(3,\); allowed: \(N, M\)"):
        match(np.zeros(3))


def test_a_batch_is_matched_image_by_image() -> None:
    cost = torch.rand(3, 6, 4, generator=torch.Generator().manual_seed(0))
    cost[1] = torch.nan  # An image without objects has no costs.
    counts = [4, 0, 2]
    images, rows, columns = match_batch(cost, counts)
    assert images.tolist() == [0, 0, 0, 0, 2, 2]
    for image, count in enumerate(counts):
        expected = match(cost[image, :, :count])
        here = images == image
        assert (rows[here].tolist(), columns[here].tolist()) == tuple(map(list, expected))
    assert [part.tolist() for part in match_batch(cost, [0, 0, 0])] == [[], [], []]


def test_more_objects_than_predictions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"images of \[3\] objects; .* at most 2 objects"):
        match_batch(torch.zeros(1, 2, 3), [3])


def test_the_cost_of_classes_is_the_change_of_the_focal_loss() -> None:
    logits = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.eye(3)[torch.tensor([[2, 0], [1, 1]])]
    cost = class_cost(logits, labels)
    assert cost.shape == (2, 5, 2)
    named = logits[0, 3, 2]
    change = focal_loss(named, torch.tensor(1.0)) - focal_loss(named, torch.tensor(0.0))
    torch.testing.assert_close(cost[0, 3, 0], change)


@pytest.mark.parametrize("symmetry", ["none", "upright", "all"])
def test_the_cost_of_boxes_is_the_sum_of_both_losses(symmetry: Symmetry) -> None:
    numbers = numbers_from_boxes(*as_tensors(boxes(5, 1)))
    target = as_tensors(boxes(3, 2))
    cost = box_cost(numbers[None], Boxes(*(part[None] for part in target)), symmetry=symmetry)
    assert cost.shape == (1, 5, 3)
    one = Boxes(*(part[2] for part in target))
    predicted = boxes_from_numbers(numbers[4])
    nearest = nearest_labelling(predicted, one, symmetry)
    torch.testing.assert_close(
        cost[0, 4, 2], number_loss(numbers[4], nearest) + corner_loss(predicted, nearest)
    )
    assert (cost[0, 4, 2] >= corner_loss(predicted, one, symmetry=symmetry)).all()


def test_lengths_count_relative_to_the_object() -> None:
    """Boxes of twice the size and offset have the same cost, except for their axes."""
    predicted, target = as_tensors(boxes(5, 1)), as_tensors(boxes(3, 2))
    costs = []
    for factor in (1.0, 2.0):
        first, second = (
            Boxes(10 * factor * box.centre, box.rotation, 10 * factor * box.size)
            for box in (predicted, target)
        )
        weight = size_weight(second, 0.5)
        costs.append(box_cost(numbers_from_boxes(*first), second, weight=weight))
        plain = box_cost(numbers_from_boxes(*first), second)
        assert not torch.allclose(plain, costs[-1])
    torch.testing.assert_close(costs[0], costs[1], rtol=1e-4, atol=1e-4)
    small = Boxes(target.centre, target.rotation, 1e-3 * target.size)
    torch.testing.assert_close(size_weight(small, 0.5), torch.full((3,), 2.5).double())


def test_boxes_find_themselves() -> None:
    target = as_tensors(boxes(6))
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    rows, columns = match(box_cost(numbers_from_boxes(*target)[order], target))
    assert order[rows].tolist() == columns.tolist()


def test_the_cost_in_the_image_takes_centre_and_size() -> None:
    first = torch.tensor([[0.5, 0.5, 0.2, 0.2]])
    second = torch.tensor([[0.6, 0.5, 0.4, 0.2], [0.5, 0.5, 0.2, 0.2]])
    overlap = generalised_iou_2d(corners_2d(first[0]), corners_2d(second[0]))
    expected = torch.tensor([[0.3 - overlap, -1.0]])
    torch.testing.assert_close(box_cost_2d(first, second), expected)
