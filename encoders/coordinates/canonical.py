"""Places in canonical coordinates: turning the scene about an axis shifts them, as moving it shifts Cartesian ones.

Canonical coordinates of an Abelian group turn each of its transformations into a translation
(Schenck et al., STRING, 2025, arXiv 2502.02562, section 3.3, extension 2), so every encoding that
sees differences only becomes invariant under that group. In return it is no longer invariant under
translations, other than those of the group.

An azimuth lives on a circle. It is given between -pi and pi, 0 towards `forward`, with a cut on the
opposite side. Two tokens on either side of the cut are neighbours, but only frequencies that are
whole numbers per radian see them so: `WholeOnCircle` in `circle.py` makes them. Without it choose
`forward` and `origin` such that nothing of the scene lies beyond the cut; the invariance then holds
for every turn that carries no token across it. Tokens without a place stand at the mean of the
others' azimuths, which is right under the same condition only.

On the axis itself (nearer than 1 micrometre) there is no azimuth, so what lies there has no place.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.arguments import POSITIVE
from stringline.encoders.coordinates.coordinates import MetricPlaces
from stringline.encoders.coordinates.geometry import View

ON_AXIS_M = 1e-6
Vector = tuple[float, float, float]


class CanonicalPlaces(nn.Module, ABC):
    """Places computed from the position relative to an origin and an axis in the robot's base frame."""

    axes = 3
    reads = MetricPlaces.reads

    def __init__(
        self,
        *,
        origin: Sequence[float] = (0.0, 0.0, 0.0),
        axis: Sequence[float] = (0.0, 0.0, 1.0),
        forward: Sequence[float] = (1.0, 0.0, 0.0),
        perturbation: float = 0.0,
    ) -> None:
        """Sets the frame.

        Args:
            origin: A point on the axis, metres in the base frame.
            axis: Direction about which turns are shifts of the azimuth, in the base frame; its
                length has no effect.
            forward: Direction in which the azimuth is 0; only its part perpendicular to the axis
                counts.
            perturbation: See `PatchCentres`.

        Raises:
            ValueError: A vector has not three finite numbers, or `axis` and `forward` lie on one
                line.
        """
        super().__init__()
        self.metric = MetricPlaces(perturbation=perturbation)
        self.origin = _vector("origin", origin)
        # Plain numbers, not buffers: they are exact in every type, and a checkpoint has them in its
        # configuration.
        self.frame = _frame(_vector("axis", axis), _vector("forward", forward))

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns the places of the back-projected patches; none has one that `MetricPlaces` gives none, or on the axis."""
        return self._canonical(*self.metric.patches(view, patch, batch, device))

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the places of points; those on the axis have none."""
        return self._canonical(*self.metric.points(points))

    @abstractmethod
    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns the canonical coordinates (..., axes) of positions off the axis (metres, z along it)."""

    def _canonical(self, points: Tensor, placed: Tensor) -> tuple[Tensor, Tensor]:
        relative = points - points.new_tensor(self.origin)
        x, y, z = (
            (relative * relative.new_tensor(direction)).sum(dim=-1) for direction in self.frame
        )
        placed = placed & (x.square() + y.square() > ON_AXIS_M**2)
        # Somewhere off the axis in their stead, where all derivatives are finite.
        x, y, z = (
            torch.where(placed, value, other) for value, other in ((x, 1.0), (y, 0.0), (z, 0.0))
        )
        return self.chart(x, y, z), placed


class SphericalPlaces(CanonicalPlaces):
    """Polar angle, azimuth (radians) and the logarithm of the distance to the origin (in metres).

    sin(theta) = sqrt(x^2 + y^2) / |r| and tan(phi) = y / x, as in the paper; theta runs from 0 on
    the axis over pi / 2 in the plane of the origin to pi, which the sine alone would not tell. The
    third coordinate completes the map to an injective one: turns leave it alone and growing the
    scene about the origin shifts it. All three mean the same length near theta = pi / 2. A shift of
    theta takes every point along its meridian; it is a transformation of space only as long as no
    point reaches the axis.
    """

    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns (theta, phi, ln |r|)."""
        from_axis = (x.square() + y.square()).sqrt()
        distance = (x.square() + y.square() + z.square()).sqrt()
        return torch.stack((torch.atan2(from_axis, z), torch.atan2(y, x), distance.log()), dim=-1)


class DirectionPlaces(SphericalPlaces):
    """Polar angle and azimuth alone: the two coordinates that the paper names.

    What lies on one ray has one place.
    """

    axes = 2

    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns (theta, phi)."""
        return super().chart(x, y, z)[..., :2]


class CylindricalPlaces(CanonicalPlaces):
    """Azimuth (radians), distance from the axis and height along it, both in units of `radius`.

    Turning the scene about the axis shifts the first and raising it shifts the last. For an arm
    with an upright first joint on that axis, the former is what its own body does. All three mean
    the same length at a distance of one radius from the axis.
    """

    def __init__(
        self,
        *,
        radius: float = 1.0,
        origin: Sequence[float] = (0.0, 0.0, 0.0),
        axis: Sequence[float] = (0.0, 0.0, 1.0),
        forward: Sequence[float] = (1.0, 0.0, 0.0),
        perturbation: float = 0.0,
    ) -> None:
        """Sets the frame.

        Args:
            radius: Metres, above 0; about the distance from the axis at which the scene is.
            origin: See `CanonicalPlaces`.
            axis: See `CanonicalPlaces`.
            forward: See `CanonicalPlaces`.
            perturbation: See `PatchCentres`.

        Raises:
            ValueError: As `CanonicalPlaces`, or the radius is not above 0.
        """
        super().__init__(origin=origin, axis=axis, forward=forward, perturbation=perturbation)
        if radius not in POSITIVE:
            raise ValueError(f"radius is {radius}; allowed: above 0, in metres.")
        self.radius = radius

    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns (phi, rho / radius, z / radius)."""
        from_axis = (x.square() + y.square()).sqrt()
        return torch.stack((torch.atan2(y, x), from_axis / self.radius, z / self.radius), dim=-1)


def _vector(name: str, numbers: Sequence[float] | NDArray[np.float64]) -> Vector:
    vector = np.asarray(numbers, dtype=np.float64)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise ValueError(f"{name} is {numbers}; allowed: three finite numbers, in the base frame.")
    return float(vector[0]), float(vector[1]), float(vector[2])


def _frame(axis: Vector, forward: Vector) -> tuple[Vector, Vector, Vector]:
    """Returns the unit vectors along which x, y and z are measured, in the base frame; right-handed."""
    upright = np.asarray(axis) / max(float(np.linalg.norm(axis)), 1e-300)
    ahead = np.asarray(forward) - (upright @ np.asarray(forward)) * upright
    length = float(np.linalg.norm(ahead))
    if not np.linalg.norm(upright) > 0.5 or not length > 1e-6 * float(np.linalg.norm(forward)):
        raise ValueError(
            f"axis is {axis} and forward is {forward}; allowed: two vectors that do not lie on "
            f"one line."
        )
    ahead = ahead / length
    x, y, z = (
        _vector("axis", direction) for direction in (ahead, np.cross(upright, ahead), upright)
    )
    return x, y, z
