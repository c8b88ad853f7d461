"""The edges of oriented boxes in an image."""

from itertools import combinations

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.images.boxes import CORNER_SIGNS, Box3d

_NEAREST_M = 0.05

EDGES = [
    (first, second)
    for first, second in combinations(range(8), 2)
    if (CORNER_SIGNS[first] != CORNER_SIGNS[second]).sum() == 1
]
"""Corners of the 12 edges."""


def box_edges(box: Box3d, intrinsics: Array) -> list[Array]:
    """Returns the edges (2, 2) of a box in the camera frame as lines in pixels.

    Edges that reach behind a plane 5 cm in front of the camera are cut there.
    """
    corners = box.corners()
    lines = []
    for first, second in EDGES:
        ends = _in_front(corners[first], corners[second])
        if ends is not None:
            pixels = ends @ np.asarray(intrinsics, np.float64).T
            lines.append(pixels[:, :2] / pixels[:, 2:])
    return lines


def _in_front(first: Array, second: Array) -> Array | None:
    """Returns the part (2, 3) of a line in front of the camera; None: there is none."""
    ends = np.stack((first, second))
    depth = ends[:, 2] - _NEAREST_M
    if (depth <= 0).all():
        return None
    if (depth > 0).all():
        return ends
    share = depth[0] / (depth[0] - depth[1])
    cut = first + share * (second - first)
    return np.stack((first, cut) if depth[0] > 0 else (cut, second))
