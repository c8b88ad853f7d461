"""The following error: the distance of commands to their targets while motion is limited."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class FollowingError:
    """The following error over the cycles in which `Reason.MOTION` acted.

    The error of a cycle is that of the hinge with the largest one.

    Attributes:
        total_rad: Sum over these cycles, rad.
        largest_rad: Largest error, rad.
    """

    total_rad: float = 0.0
    largest_rad: float = 0.0

    def __add__(self, other: Self) -> Self:
        """Returns the error over the cycles of both."""
        largest = max(self.largest_rad, other.largest_rad)
        return type(self)(self.total_rad + other.total_rad, largest)


NO_FOLLOWING_ERROR = FollowingError()
