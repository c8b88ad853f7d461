"""Draws that are the same in every episode, for experts that act in one way."""

from typing import Any

import numpy as np

# Share of a range by which the draws of each further attempt leave its middle more.
MORE_SHARE = 0.25


class PlainDraws(np.random.Generator):
    """A source of randomness that depends on the number of the attempt alone.

    Numbers from a range lie in its middle at the first attempt, and farther from it at each further
    one, up to the whole range.
    """

    def __init__(self, attempt: int = 0) -> None:
        super().__init__(np.random.PCG64(attempt))
        self._share = min(MORE_SHARE * attempt, 1.0)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Returns numbers around the middle of a range."""
        middle = (np.asarray(low) + np.asarray(high)) / 2
        return middle + self._share * (super().uniform(low, high, size) - middle)
