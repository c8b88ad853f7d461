"""A model of a stereo depth camera."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MILLIMETRES = 1000.0
# The threshold of edges is `edge` times 0.6 + 0.5 |n|, n normal: holes at faint edges flicker.
STEADY = 0.6
FLICKER = 0.5
ROUNDING_M = 0.002  # Uncertainty of second differences of depth in whole millimetres.

Map = NDArray[np.float32]


@dataclass(frozen=True)
class StereoSensor:
    """Depth from disparity: noise that grows with the square of depth, steps, holes, a range.

    A stereo camera measures disparity d = f b / z. Its error has a spread s that depends little on
    z, so that of depth is s z^2 / (f b) (Keselman et al., 2017, "Intel RealSense Stereoscopic Depth
    Cameras"). The axial noise of structured light, which triangulates as well, was measured to grow
    with z^2 too, little changed up to 60 degrees between ray and normal and steeply beyond (Nguyen,
    Izadi and Lovell, 2012, "Modeling Kinect Sensor Noise for Improved 3D Reconstruction and
    Tracking"). Disparities come in steps of 1/32 pixel (Grunnet-Jepsen et al., "Subpixel Linearity
    Improvement for Intel RealSense Depth Camera D400 Series"), so depth comes in steps that grow
    with z^2 as well.

    Depth is 0 outside of the range; where a surface is seen at a grazing angle; and just behind the
    edges of nearer objects, where only one of both imagers sees the surface. Disparity is an affine
    function of the pixel on every plane; an edge is where its second difference exceeds a share of
    it.

    The forms are those of the sources. The numbers are round ones of our choice for a camera such
    as RealSense D405 (1280 columns over 87 degrees, baseline 18 mm), not fitted to a measurement:
    1.7 mm at 0.5 m, 6.6 mm at 1 m.

    Attributes:
        focal_px: Focal length f of the sensor's imagers, pixels; images may be coarser.
        baseline_m: Baseline b, metres.
        spread_px: Standard deviation s of disparity, pixels.
        step_px: Resolution of disparity, pixels.
        nearest_m: Smallest measured depth.
        farthest_m: Largest measured depth.
        grazing_deg: Largest angle between ray and normal with a measurement.
        edge: Second difference of disparity, as a share of disparity, from which on a pixel is
            hidden behind an edge.
    """

    focal_px: float = 674.0
    baseline_m: float = 0.018
    spread_px: float = 0.08
    step_px: float = 1 / 32
    nearest_m: float = 0.07
    farthest_m: float = 2.0
    grazing_deg: float = 80.0
    edge: float = 0.03

    def measure(
        self,
        depth: NDArray[np.uint16],
        intrinsics: Map,
        rng: np.random.Generator,
        strength: float = 1.0,
    ) -> NDArray[np.uint16]:
        """Returns a measurement (H, W) of the true depth (H, W) along the optical axis.

        Both are in millimetres, and 0 where there is nothing; `intrinsics` (3, 3) are those of
        these images, pixels. The strength is above 0 and at most 1: noise, steps and 90 degrees
        less `grazing_deg` are multiplied by it, and `edge` is divided by it. The range does not
        change.
        """
        height, width = depth.shape
        normal = rng.standard_normal((height + 1, width), dtype=np.float32)
        fb = np.float32(self.focal_px * self.baseline_m)
        seen = depth > 0
        inverse = np.float32(MILLIMETRES) / np.maximum(depth, 1).astype(np.float32)
        inverse *= seen  # Depth 0 is disparity 0.
        across = _Slopes.of(inverse, 1)
        down = _Slopes.of(inverse, 0)
        lost = self._hidden(inverse, across, down, normal[1:], strength)
        lost |= self._grazing(inverse, across.smaller(), down.smaller(), intrinsics, strength)
        disparity = inverse
        disparity *= fb
        disparity += np.float32(self.spread_px * strength) * normal[:-1]
        step = np.float32(self.step_px * strength)
        disparity /= step
        np.rint(disparity, out=disparity)
        disparity *= step
        lost |= disparity < fb / self.farthest_m
        lost |= disparity > fb / self.nearest_m
        seen &= ~lost
        # The values of small disparities are discarded.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            millimetres = np.rint(fb * np.float32(MILLIMETRES) / disparity)
            found: NDArray[np.uint16] = millimetres.astype(np.uint16)
        found *= seen
        return found

    def _hidden(
        self, inverse: Map, across: "_Slopes", down: "_Slopes", flicker: Map, strength: float
    ) -> NDArray[np.bool_]:
        """Returns where (H, W) a pixel is behind an edge; `flicker` (H, W) is normal noise."""
        least = np.abs(flicker)
        least *= np.float32(FLICKER * self.edge / strength)
        least += np.float32(STEADY * self.edge / strength)
        least += np.float32(ROUNDING_M) * inverse
        least *= inverse
        found: NDArray[np.bool_] = across.after - across.before > least
        found |= down.after - down.before > least
        return found

    def _grazing(
        self, inverse: Map, i_x: Map, i_y: Map, intrinsics: Map, strength: float
    ) -> NDArray[np.bool_]:
        """Returns where (H, W) a surface is seen at a grazing angle; overwrites `i_x` and `i_y`.

        With i = 1 / z, affine in the pixel (x, y) from the principal point on a plane, the normal
        is along (f i_x, f i_y, i - x i_x - y i_y), and its product with the ray (x / f, y / f, 1)
        is i.
        """
        focal = intrinsics[0, 0]
        rays = _rays(*inverse.shape, float(focal), float(intrinsics[0, 2]), float(intrinsics[1, 2]))
        flattest = np.cos(np.radians(90.0 - (90.0 - self.grazing_deg) * strength))
        least = np.float32(1 / flattest**2) / rays.length2  # 1 / (cos^2 of the angle |ray|^2).
        least *= inverse
        least *= inverse
        towards = inverse - rays.x * i_x
        towards -= rays.y * i_y
        towards *= towards
        i_x *= i_x
        i_y *= i_y
        i_x += i_y
        i_x *= focal**2
        i_x += towards
        found: NDArray[np.bool_] = i_x > least
        return found


@dataclass(frozen=True)
class _Rays:
    """Rays through the pixels: x (W,) and y (H, 1) in pixels, and |ray|^2 (H, W) for z = 1."""

    x: Map
    y: Map
    length2: Map


@lru_cache(maxsize=8)
def _rays(height: int, width: int, focal: float, middle_x: float, middle_y: float) -> _Rays:
    """Returns the rays of a camera, which are the same for all of its images."""
    x = np.arange(width, dtype=np.float32) + np.float32(0.5) - np.float32(middle_x)
    y = (np.arange(height, dtype=np.float32) + np.float32(0.5) - np.float32(middle_y))[:, None]
    return _Rays(x, y, (np.float32(1.0) + (x**2 + y**2) / np.float32(focal**2)).astype(np.float32))


@dataclass(frozen=True)
class _Slopes:
    """Differences (H, W) of pixels to the pixel before and the pixel after along an axis.

    At the ends of a row both are the only existing difference; of a single pixel they are 0.
    """

    before: Map
    after: Map

    @classmethod
    def of(cls, values: Map, axis: int) -> "_Slopes":
        """Subtracts neighbours in memory order, which is faster than by slices of rows."""
        before = np.zeros(values.shape, dtype=np.float32)
        after = np.zeros(values.shape, dtype=np.float32)
        if values.shape[axis] > 1:
            stride = 1 if axis else values.shape[1]
            flat = values.ravel()
            np.subtract(flat[stride:], flat[:-stride], out=before.ravel()[stride:])
            after.ravel()[:-stride] = before.ravel()[stride:]
            ends = before.swapaxes(0, axis), after.swapaxes(0, axis)
            ends[0][0], ends[1][-1] = ends[0][1], ends[1][-2]
        return cls(before, after)

    def smaller(self) -> Map:
        """Returns the smaller differences, in place of `after`: at edges those of one surface."""
        np.copyto(self.after, self.before, where=np.abs(self.before) < np.abs(self.after))
        return self.after
