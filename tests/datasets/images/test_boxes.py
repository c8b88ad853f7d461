"""Oriented boxes."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from stringline.datasets.images.labelled_image import Box3d


def test_axes_with_four_decimals_are_accepted_and_with_two_refused() -> None:
    zero, one = np.zeros(3), np.ones(3)
    for axes in Rotation.random(2000, random_state=0).as_matrix():
        Box3d(zero, axes.round(4), one)
    with pytest.raises(ValueError, match="columns of a proper rotation"):
        Box3d(zero, Rotation.from_euler("xyz", (0.3, 0.5, 0.7)).as_matrix().round(2), one)
