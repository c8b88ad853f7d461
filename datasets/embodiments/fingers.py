"""Parallel grippers: conversions between finger travel, gap of the pads, and opening."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class FingerTravel:
    """The range of a finger; the opening is linear in the travel, and so in the gap.

    Attributes:
        closed: Travel of one finger in metres at opening 0, where the pads meet.
        opened: Travel of one finger in metres at opening 1.
    """

    closed: float
    opened: float

    def travel(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns the travel (...) of one finger in metres at openings (...)."""
        return np.asarray(
            self.closed + (self.opened - self.closed) * np.asarray(opening, dtype=np.float64)
        )

    def opening(self, travel: ArrayLike) -> NDArray[np.float64]:
        """Returns openings (...) at the travel (...) of one finger in metres."""
        return np.asarray(
            (np.asarray(travel, dtype=np.float64) - self.closed) / (self.opened - self.closed)
        )

    def gap(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns the gap between the pads (...) in metres at openings (...)."""
        return 2 * (self.travel(opening) - self.closed)

    @property
    def openings_per_metre(self) -> float:
        """Change of the opening per metre of travel of one finger."""
        return float(self.opening(1.0) - self.opening(0.0))
