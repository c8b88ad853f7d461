"""Places of patches without depth: on their ray, at a prior depth and with its spread."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    unknown_name,
)
from stringline.encoders.coordinates.coordinates import (
    RAYS,
    Coordinates,
    MetricPlaces,
    PatchCentres,
    check_points,
)
from stringline.encoders.coordinates.geometry import (
    DepthPooling,
    View,
    base_rays,
    check_pooling,
    patch_spread,
    pooled_depth,
)


class RayPlaces(nn.Module):
    """Metres in the base frame, for calibrated cameras with and without depth.

    A patch with depth has the place of `MetricPlaces`. Any other patch, of a camera without depth
    or in a hole of the depth, is on the ray of its centre at the prior depth: where the ray meets
    the horizontal plane `plane_m`, such as the table, within `range_m`; rays that do not meet it
    are at the far end. Without a plane it is the middle of the range, and shifts of the world in
    any direction have no effect; with a plane, those along it. Cameras of `depth_m` have one prior
    depth for all patches: the patches of a camera on a gripper are then on a plane that moves with
    it, where the table would be a wrong guess for the fingers and for what they hold.

    The spread of a place is the standard deviation of its depth along its ray. Rotary encodings
    then use the expected rotation; see `PositionEncoding.prepare`.
    """

    axes = 3
    reads = MetricPlaces.reads | {RAYS}

    def __init__(
        self,
        *,
        plane_m: float | None = 0.0,
        range_m: Sequence[float] = (0.1, 1.5),
        depth_m: Mapping[str, float] | None = None,
        spread: float = 0.0,
        edges: bool = False,
        perturbation: float = 0.0,
        depth_pooling: DepthPooling = "median",
    ) -> None:
        """Sets the prior of the depth.

        Args:
            plane_m: Height of the plane where rays end, m in the base frame: the table; if None,
                the middle of range_m.
            range_m: Smallest and largest prior depth along the optical axis, metres.
            depth_m: Prior depth by camera, such as {wrist: 0.3}, in place of the plane; if None,
                0.3 m for moving ones.
            spread: Standard deviation of the prior depth, as a share of it; 0: depths count as
                exact, as encodings need that support no spread.
            edges: Whether a patch with depth has a spread too, the standard deviation of the depth
                of its pixels, which is large at the edges of objects.
            perturbation: Standard deviation of random shifts of patches in training, in cells.
            depth_pooling: Depth of a patch: the median of its pixels, or the mean, which lies
                between two surfaces.

        Raises:
            ValueError: An argument is out of range.
        """
        super().__init__()
        check_pooling(depth_pooling)
        NOT_NEGATIVE.check(spread=spread)
        if plane_m is not None:
            FINITE.check(plane_m=plane_m)
        near, far = range_m if len(range_m) == 2 else (0.0, 0.0)
        if near not in FINITE or far not in FINITE or not 0 < near < far:
            raise ValueError(
                f"range_m is {list(range_m)}; allowed: two depths in metres, above 0, the smaller "
                f"one first."
            )
        POSITIVE.check(**{f"depth_m.{name}": depth for name, depth in (depth_m or {}).items()})
        self.plane_m = plane_m
        self.depth_m = dict(depth_m or {})
        self.range_m = (float(near), float(far))
        self.spread = spread
        self.edges = edges
        self.depth_pooling: DepthPooling = depth_pooling
        self.centres = PatchCentres(perturbation)

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns back-projected patches; all have a position, see `patches_with_spread`."""
        return self.patches_with_spread(view, patch, batch, device)[:2]

    def patches_with_spread(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns coordinates and existence of the positions of a view's patches, and their spread.

        The spread (batch, N, 3) is a vector along the ray, metres; None without `spread` and
        `edges`, for encodings that support none. Only patches of views that are not
        `View.calibrated` have no position.

        Raises:
            ValueError: The view lacks intrinsics or `T_base_camera`.
        """
        if view.intrinsics is None or view.T_base_camera is None:
            raise ValueError(without_rays("The view"))
        kind = torch.promote_types(torch.float32, view.T_base_camera.dtype)
        measured = (
            None
            if view.depth is None
            else pooled_depth(view.depth, view.depth_unit_m, patch, self.depth_pooling)
        )
        kind = kind if measured is None else torch.promote_types(kind, measured[0].dtype)
        directions, origin = base_rays(
            self.centres(view, patch, batch, device),
            view.intrinsics.to(kind),
            view.T_base_camera.to(kind),
        )
        depth = self._prior(directions, origin, view.name)
        deviation = self.spread * depth
        if measured is not None and view.depth is not None:
            known = measured[1]
            depth = torch.where(known, measured[0].to(kind), depth)
            within = patch_spread(view.depth, view.depth_unit_m, patch) if self.edges else 0.0
            deviation = torch.where(known, within, deviation)
        calibrated = view.calibrated()[:, None].expand(depth.shape)
        places = directions * depth.unsqueeze(-1) + origin
        if not self.spread and not self.edges:
            return places, calibrated, None
        deviation = torch.where(calibrated, deviation, 0.0)
        return places, calibrated, deviation.unsqueeze(-1) * directions

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points themselves."""
        check_points(points)
        return points, torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)

    def _prior(self, directions: Tensor, origin: Tensor, camera: str) -> Tensor:
        """Returns the prior depth (B, N), metres, of rays of a camera as from `base_rays`."""
        near, far = self.range_m
        if camera in self.depth_m:
            return torch.full_like(directions[..., 2], self.depth_m[camera])
        if self.plane_m is None:
            return torch.full_like(directions[..., 2], (near + far) / 2)
        below = self.plane_m - origin[..., 2]
        slope = directions[..., 2]
        # Rays that never meet the plane, and those along it, would divide by zero or go backwards.
        meets = below * slope > 0
        return torch.where(meets, below / torch.where(meets, slope, 1.0), far).clamp(near, far)


def without_rays(what: str) -> str:
    """Returns the error of places on rays for something, such as a camera, without calibration."""
    return (
        f"{what} has no intrinsics or no T_base_camera, so its patches have no rays; allowed for "
        f"RayPlaces: calibrated cameras. GridPlaces (coordinates=grid) need no calibration."
    )


def check_prior_depths(coordinates: Coordinates, cameras: Sequence[str]) -> None:
    """Raises a ValueError if `depth_m` contains a camera that is not among those that are read."""
    if not isinstance(coordinates, RayPlaces):
        return
    for name in coordinates.depth_m:
        if name not in cameras:
            raise ValueError(f"coordinates.places.depth_m: {unknown_name('camera', name, cameras)}")


def patches_with_spread(
    coordinates: Coordinates, view: View, patch: int, batch: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns `coordinates.patches`, and the spread (batch, N, axes) of the places; None: zero."""
    if isinstance(coordinates, RayPlaces):
        return coordinates.patches_with_spread(view, patch, batch, device)
    return *coordinates.patches(view, patch, batch, device), None
