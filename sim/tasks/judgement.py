"""What a strict judge needs: who touches what, and for how long something has been so."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix, inverse

REST_SECONDS = 0.5
REST_SPEED = 0.01  # m/s of the fastest point. aloha_sim asks for 1e-3 at one instant; rolling to rest takes seconds until then.


@dataclass(frozen=True)
class Touching:
    """Which groups of shapes are in contact now.

    Attributes:
        pairs: Of names: props, `table`, `left` and `right` for the arms without their pads, `left/left_pad` and so on.
        arms: Names of the arms.
    """

    pairs: Collection[frozenset[str]]
    arms: Sequence[str]

    def between(self, a: str, b: str) -> bool:
        """Says whether two groups touch."""
        return frozenset((a, b)) in self.pairs

    def held(self, arm: str, prop: str) -> bool:
        """Says whether both pads of an arm touch a prop."""
        return all(self.between(f"{arm}/{side}_pad", prop) for side in ("left", "right"))

    def by_arm(self, arm: str, prop: str) -> bool:
        """Says whether any part of an arm touches a prop."""
        return any(self.between(part, prop) for part in (arm, f"{arm}/left_pad", f"{arm}/right_pad"))

    def by_any_arm(self, props: Iterable[str]) -> bool:
        """Says whether an arm touches one of the props."""
        return any(self.by_arm(arm, prop) for prop in props for arm in self.arms)


class Lasting:
    """For how long something has been true without a break."""

    def __init__(self) -> None:
        self._since = np.inf

    def reset(self) -> None:
        """Forgets."""
        self._since = np.inf

    def update(self, holds: bool, now: float, seconds: float = REST_SECONDS) -> bool:
        """Takes note of whether it holds at the time `now`, and says whether it has held for that many seconds."""
        self._since = min(self._since, now) if holds else np.inf
        return bool(now - self._since >= seconds - 1e-9)


def upright(T_base_prop: Matrix, cosine: float = 0.95) -> bool:
    """Says whether a prop's z axis points up, to within 18 degrees by default."""
    return bool(T_base_prop[2, 2] > cosine)


def in_frame(T_base_frame: Matrix, T_base_prop: Matrix, points: Matrix) -> Matrix:
    """Returns points (..., 3) of a prop in the frame of another.

    Args:
        T_base_frame: (4, 4), of the other.
        T_base_prop: (4, 4), of the prop.
        points: (..., 3), in the prop's frame, metres.
    """
    T_frame_prop = inverse(T_base_frame) @ T_base_prop
    return np.asarray(points @ T_frame_prop[:3, :3].T + T_frame_prop[:3, 3])
