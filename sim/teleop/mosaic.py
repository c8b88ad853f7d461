"""Pictures of several cameras as one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mosaic(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Returns pictures (H, W, 3) of one size side by side, two in a row, from the left and the top; gaps are black."""
    first = pictures[0]
    columns = min(len(pictures), 2)
    rows = -(-len(pictures) // columns)
    height, width = first.shape[:2]
    whole = np.zeros((rows * height, columns * width, 3), dtype=np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        whole[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    return whole
