"""Canonical coordinates, in which rotations of the scene about an axis are shifts.

Canonical coordinates of an Abelian group turn its transformations into translations (Schenck et
al., STRING, 2025, arXiv 2502.02562, section 3.3, extension 2), so every relative encoding becomes
invariant under that group. In return it is not invariant under other translations.

An azimuth is an angle between -pi and pi, 0 towards `forward`, with a cut on the opposite side.
Only integer frequencies, of which a full turn is a multiple, treat tokens on both sides of the
cut as neighbours: `WholeOnCircle` makes them. Without it choose `forward` and `origin` such that
the scene does not cross the cut; the invariance then holds for all rotations that move no token
across it. Tokens without a position are put at the mean azimuth of the others, which is right
under the same condition only.

Points nearer to the axis than 1 micrometre have no azimuth and thus no position.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.encoders.coordinates.coordinates import MetricPlaces, MissingDepth
from stringline.encoders.coordinates.geometry import DepthPooling, View
from stringline.encoders.positions.frequencies import Frequencies, FrequencyFactory

ON_AXIS_M = 1e-6
Vector = tuple[float, float, float]


class CanonicalPlaces(nn.Module, ABC):
    """Coordinates relative to an origin and an axis in the base frame of the robot."""

    axes = 3
    reads = MetricPlaces.reads

    def __init__(
        self,
        *,
        origin: Sequence[float] = (0.0, 0.0, 0.0),
        axis: Sequence[float] = (0.0, 0.0, 1.0),
        forward: Sequence[float] = (1.0, 0.0, 0.0),
        perturbation: float = 0.0,
        depth_pooling: DepthPooling = "median",
        missing_depth: MissingDepth = "exclude",
    ) -> None:
        """Sets the frame.

        Args:
            origin: A point on the axis, in metres in the base frame.
            axis: Direction of the axis in the base frame, of any length.
            forward: Direction of azimuth 0; only its part perpendicular to the axis counts.
            perturbation: Standard deviation of random shifts of patches in training, in cells.
            depth_pooling: Depth of a patch: the median of its pixels, or the mean, which lies
                between two surfaces.
            missing_depth: Patches without depth: exclude (from attention), or centroid (they stand
                at that of the others).
        """
        super().__init__()
        self.metric = MetricPlaces(
            perturbation=perturbation, depth_pooling=depth_pooling, missing_depth=missing_depth
        )
        self.missing_depth = self.metric.missing_depth
        self.origin = _vector("origin", origin)
        # Plain numbers, not buffers: exact in every type, and part of the configuration.
        self.frame = _frame(_vector("axis", axis), _vector("forward", forward))

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns the coordinates of back-projected patches; those on the axis lack a position."""
        return self._canonical(*self.metric.patches(view, patch, batch, device))

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the coordinates of points; those on the axis lack a position."""
        return self._canonical(*self.metric.points(points))

    @abstractmethod
    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns coordinates (..., axes) of points off the axis (metres, z along the axis)."""

    def _canonical(self, points: Tensor, has_position: Tensor) -> tuple[Tensor, Tensor]:
        relative = points - points.new_tensor(self.origin)
        x, y, z = (
            (relative * relative.new_tensor(direction)).sum(dim=-1) for direction in self.frame
        )
        has_position = has_position & (x.square() + y.square() > ON_AXIS_M**2)
        # The others are put off the axis, where all derivatives are finite.
        x, y, z = (
            torch.where(has_position, value, other)
            for value, other in ((x, 1.0), (y, 0.0), (z, 0.0))
        )
        return self.chart(x, y, z), has_position


class SphericalPlaces(CanonicalPlaces):
    """Polar angle and azimuth (radians), and the logarithm of the distance to the origin (metres).

    sin(theta) = sqrt(x^2 + y^2) / |r| and tan(phi) = y / x, as in the paper; theta runs from 0 on
    the axis over pi / 2 in the plane of the origin to pi. The third coordinate makes the map
    injective: rotations leave it unchanged, and scaling about the origin shifts it. All three have
    the same metric length near theta = pi / 2. A shift of theta moves points along meridians; it is
    a transformation of space only while no point reaches the axis.
    """

    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns (theta, phi, ln |r|)."""
        from_axis = (x.square() + y.square()).sqrt()
        distance = (x.square() + y.square() + z.square()).sqrt()
        return torch.stack((torch.atan2(from_axis, z), torch.atan2(y, x), distance.log()), dim=-1)


class DirectionPlaces(SphericalPlaces):
    """Polar angle and azimuth alone, the two coordinates of the paper: one place per ray."""

    axes = 2

    def chart(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Returns (theta, phi)."""
        return super().chart(x, y, z)[..., :2]


class CylindricalPlaces(CanonicalPlaces):
    """Azimuth (radians), distance from the axis and height along it, in units of `radius`.

    Rotations about the axis shift the first coordinate, translations along it the last. For an arm
    whose first joint is upright on that axis, its rotation is such a shift. All three have the same
    metric length at a distance of one radius from the axis.
    """

    def __init__(
        self,
        *,
        radius: float = 1.0,
        origin: Sequence[float] = (0.0, 0.0, 0.0),
        axis: Sequence[float] = (0.0, 0.0, 1.0),
        forward: Sequence[float] = (1.0, 0.0, 0.0),
        perturbation: float = 0.0,
        depth_pooling: DepthPooling = "median",
        missing_depth: MissingDepth = "exclude",
    ) -> None:
        """Sets the frame.

        Args:
            radius: Metres that correspond to one radian, above 0: the typical distance of the scene
                from the axis.
            origin: A point on the axis, in metres in the base frame.
            axis: Direction of the axis in the base frame, of any length.
            forward: Direction of azimuth 0; only its part perpendicular to the axis counts.
            perturbation: Standard deviation of random shifts of patches in training, in cells.
            depth_pooling: Depth of a patch: the median of its pixels, or the mean, which lies
                between two surfaces.
            missing_depth: Patches without depth: exclude (from attention), or centroid (they stand
                at that of the others).

        Raises:
            ValueError: See `CanonicalPlaces`, or the radius is not above 0.
        """
        super().__init__(
            origin=origin,
            axis=axis,
            forward=forward,
            perturbation=perturbation,
            depth_pooling=depth_pooling,
            missing_depth=missing_depth,
        )
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
    """Returns the unit vectors of x, y and z in the base frame; right-handed."""
    upright = np.asarray(axis) / max(float(np.linalg.norm(axis)), 1e-300)
    ahead = np.asarray(forward) - (upright @ np.asarray(forward)) * upright
    length = float(np.linalg.norm(ahead))
    if not np.linalg.norm(upright) > 0.5 or not length > 1e-6 * float(np.linalg.norm(forward)):
        raise ValueError(
            f"axis is {axis} and forward is {forward}; allowed: two vectors that are not parallel."
        )
    ahead = ahead / length
    x, y, z = (
        _vector("axis", direction) for direction in (ahead, np.cross(upright, ahead), upright)
    )
    return x, y, z


class WholeOnCircle(Frequencies):
    """Frequencies whose entries along some axes are rounded to integers per radian.

    exp(i w phi) is a function of a direction only if w (phi + 2 pi) and w phi differ by full turns.
    Gradients pass through the rounding unchanged (Bengio et al., 2013, arXiv 1308.3432), so the
    wrapped frequencies keep learning and jump between integers.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        frequencies: FrequencyFactory,
        angles: Sequence[int] = (0,),
    ) -> None:
        """Builds the wrapped frequencies.

        `angles` are the axes in radians: 0 in `CylindricalPlaces`, 1 in `SphericalPlaces`.
        """
        super().__init__(sets, axes, planes)
        if not angles or not all(0 <= angle < axes for angle in angles):
            raise ValueError(
                f"angles are {tuple(angles)}; allowed: at least one of the axes 0 to {axes - 1}."
            )
        self.angles = tuple(angles)
        self.frequencies: Frequencies = frequencies(sets=sets, axes=axes, planes=planes)

    def forward(self) -> Tensor:
        """Returns Omega."""
        omega: Tensor = self.frequencies()
        whole = omega + (omega.round() - omega).detach()
        on_circle = torch.tensor([axis in self.angles for axis in range(self.axes)])
        on_circle = on_circle.to(omega.device, non_blocking=True)
        return torch.where(on_circle[:, None], whole, omega)

    def reset_parameters(self, seed: int) -> None:
        """Draws the initial values of the wrapped frequencies."""
        self.frequencies.reset_parameters(seed)

    def zero_(self) -> None:
        """Sets the wrapped frequencies to zero; see `Frequencies.zero_`."""
        self.frequencies.zero_()
