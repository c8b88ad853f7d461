"""The overlap of one box with all objects."""

import numpy as np
import pytest

from stringline.datasets.images.labelled_image import Box3d
from stringline.encoders.perception.detection_results import constant_box_iou


def test_equal_boxes_are_met_by_one() -> None:
    box = Box3d(np.array([0.1, 0.2, 2.0]), np.eye(3), np.array([0.3, 0.4, 0.5]))
    assert constant_box_iou([box] * 3) == pytest.approx(1)


def test_it_is_that_of_the_best_size() -> None:
    """Two cubes of the same centre; that of side s overlaps both, the mean is largest at one."""
    small, large = (Box3d(np.zeros(3), np.eye(3), np.full(3, side)) for side in (1.0, 2.0))
    found = constant_box_iou([small, large])
    assert 0.45 < found <= (1 + 1 / 8) / 2
    far = Box3d(np.full(3, 100.0), np.eye(3), np.ones(3))
    assert constant_box_iou([small, far]) < 0.01
    assert np.isnan(constant_box_iou([]))
