"""The parts of an episode between the steps at which its stage increases."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EpisodePart:
    """A part of an episode, which ends when a stage is reached.

    Attributes:
        first: Control step at which the stage before was reached; 0 in the first part.
        last: Control step at which the stage is reached.
        stage: Index of the reached stage.
    """

    first: int
    last: int
    stage: int

    @property
    def steps(self) -> int:
        """Number of control steps, both ends included."""
        return self.last - self.first + 1

    def spread(self, count: int) -> list[int]:
        """Returns `count` control steps at even distances, the first and the last included."""
        steps: list[int] = np.rint(np.linspace(self.first, self.last, count)).astype(int).tolist()
        return steps


def parts_of(stages: Sequence[int] | NDArray[np.integer]) -> list[EpisodePart]:
    """Divides an episode where its stage increases.

    What follows the last increase belongs to no part.

    Args:
        stages: (T,), index of the furthest stage after each control step; it never decreases.
    """
    found = np.asarray(stages)
    ends = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist()]
    return [EpisodePart(first, last, int(found[last])) for first, last in pairwise(ends)]
