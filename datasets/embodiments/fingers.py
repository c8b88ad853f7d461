"""Two fingers that slide: how their travel, the gap between their pads and the opening of the contract belong together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class FingerTravel:
    """Where a finger's slide stands when its gripper is closed and open; an opening is linear between them, so in the gap.

    Attributes:
        closed: One finger's travel in metres at opening 0, where the pads meet.
        opened: The same at opening 1.
    """

    closed: float
    opened: float

    def travel(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns one finger's travel (...) in metres at openings (...)."""
        return np.asarray(
            self.closed + (self.opened - self.closed) * np.asarray(opening, dtype=np.float64)
        )

    def opening(self, travel: ArrayLike) -> NDArray[np.float64]:
        """Returns openings (...) at one finger's travel (...) in metres."""
        return np.asarray(
            (np.asarray(travel, dtype=np.float64) - self.closed) / (self.opened - self.closed)
        )

    def gap(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns the gap between the pads (...) in metres at openings (...)."""
        return 2 * (self.travel(opening) - self.closed)

    @property
    def openings_per_metre(self) -> float:
        """How much the opening changes by a metre of one finger's travel."""
        return float(self.opening(1.0) - self.opening(0.0))
