"""Random start poses of props, and the distance between props as seen from above."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about

Range = tuple[float, float]
UP = (0.0, 0.0, 1.0)
TRIES = 40


def draw_yaw(random_state: np.random.RandomState, yaw_deg: Range) -> Matrix:
    """Draws a rotation (3, 3) about the z axis."""
    return rotation_about(UP, np.radians(random_state.uniform(*yaw_deg)))


def draw_pose(
    random_state: np.random.RandomState,
    x: Range,
    y: Range,
    height: float = 0.0,
    *,
    rotation: Matrix | None = None,
) -> Matrix:
    """Draws a pose (4, 4) relative to the table top; x and y are uniform in ranges in metres."""
    spot = (random_state.uniform(*x), random_state.uniform(*y), height)
    return pose(spot, rotation)


def draw_apart(
    draw: Callable[[], tuple[Matrix, Matrix]],
    space: Callable[[Matrix, Matrix], float],
    least: float,
) -> tuple[Matrix, Matrix]:
    """Returns the first of 40 draws of two poses with enough space between them.

    If no draw has more than `least`, the draw with the most space is returned.
    """
    found = [draw() for _ in range(TRIES)]
    return next(
        (poses for poses in found if space(*poses) > least),
        max(found, key=lambda poses: space(*poses)),
    )


def box_gap(T_table_a: Matrix, half_a: ArrayLike, T_table_b: Matrix, half_b: ArrayLike) -> float:
    """Returns the gap between two boxes as seen from above, metres; below zero where they overlap.

    It is the widest gap along a side of one of them (separating axes, Gottschalk et al. 1996),
    which is a lower bound of their distance. The z axes of both poses point up; `half_a` and
    `half_b` (2,) are half of the lengths along x and y, metres.
    """
    # (2, 2), the direction of one side per row.
    sides_a = T_table_a[:2, :2].T
    sides_b = T_table_b[:2, :2].T
    axes = np.concatenate([sides_a, sides_b])
    between = np.abs(axes @ (T_table_b[:2, 3] - T_table_a[:2, 3]))
    radii_a = np.abs(axes @ sides_a.T) @ np.asarray(half_a)
    radii_b = np.abs(axes @ sides_b.T) @ np.asarray(half_b)
    return float((between - (radii_a + radii_b)).max())
