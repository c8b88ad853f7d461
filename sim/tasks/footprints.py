"""Rectangles on the table: how far apart they are, seen from above."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.rigid import Matrix

TRIES = 40


def gap(T_table_a: Matrix, half_a: ArrayLike, T_table_b: Matrix, half_b: ArrayLike) -> float:
    """Returns how far apart two boxes are from above, metres; below zero where they overlap.

    It is the widest gap along a side of one of them (separating axes, Gottschalk et al. 1996); the distance is never below it.

    Args:
        T_table_a: (4, 4), pose of the first; its z axis points up.
        half_a: (2,) half of its lengths along its x and y axis, metres.
        T_table_b: (4, 4), of the second.
        half_b: (2,), of the second.
    """
    sides_a, sides_b = T_table_a[:2, :2].T, T_table_b[:2, :2].T  # (2, 2), one side's direction per row.
    axes = np.concatenate([sides_a, sides_b])
    between = np.abs(axes @ (T_table_b[:2, 3] - T_table_a[:2, 3]))
    radii = np.abs(axes @ sides_a.T) @ np.asarray(half_a) + np.abs(axes @ sides_b.T) @ np.asarray(half_b)
    return float((between - radii).max())


def draw_apart(
    draw: Callable[[], tuple[Matrix, Matrix]], space: Callable[[Matrix, Matrix], float], least: float
) -> tuple[Matrix, Matrix]:
    """Returns the first of 40 draws of two poses with that much space between them; if none has, the one with the most."""
    found = [draw() for _ in range(TRIES)]
    return next((poses for poses in found if space(*poses) > least), max(found, key=lambda poses: space(*poses)))
