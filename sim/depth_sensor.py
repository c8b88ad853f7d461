"""A model of a stereo depth camera: what it makes of the true depth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MILLIMETRES = 1000.0
STEADY, FLICKER = 0.6, 0.5  # What counts as an edge is `edge` times 0.6 + 0.5 |n|, n normal: holes at faint ones come and go.
ROUNDING_M = 0.002  # Second differences of depth in whole millimetres are that uncertain.

Map = NDArray[np.float32]


@dataclass(frozen=True)
class StereoSensor:
    """Depth from disparity: noise that grows with the square of the depth, steps, holes, and a range.

    A stereo camera measures disparity d = f b / z. Its error has a spread s that depends little on z, so that of depth is
    s z^2 / (f b) (Keselman et al., 2017, "Intel RealSense Stereoscopic Depth Cameras"). The axial noise of structured light,
    which triangulates as well, was measured to grow with z^2 too, little changed up to 60 degrees between ray and normal and
    steeply beyond (Nguyen, Izadi and Lovell, 2012, "Modeling Kinect Sensor Noise for Improved 3D Reconstruction and Tracking").
    Disparities come in steps of 1/32 pixel (Grunnet-Jepsen et al., "Subpixel Linearity Improvement for Intel RealSense Depth
    Camera D400 Series"), so depth comes in steps that grow with z^2 as well.

    There is no depth, 0: nearer or farther than the range; where a surface is seen at a grazing angle; and just behind the
    edges of nearer things, where only one of both imagers sees the surface. An edge is where disparity, which is an affine
    function of the pixel on every plane, is bent: where its second difference exceeds a share of it.

    How it was made: the forms are those of the sources. The numbers are round ones of our choice for a camera such as
    RealSense D405 (1280 columns over 87 degrees, baseline 18 mm), not fitted to a measurement: 1.7 mm at 0.5 m, 6.6 mm at 1 m.

    Attributes:
        focal_px: f of the sensor's own imagers, pixels; those of the pictures may be coarser.
        baseline_m: b, metres.
        spread_px: s, pixels.
        step_px: Between two disparities that it can tell apart, pixels.
        nearest_m: What is nearer has no depth.
        farthest_m: What is farther has none either.
        grazing_deg: Between ray and normal; at larger angles there is no depth.
        edge: Second difference of disparity, as a share of disparity, from which on a pixel is hidden behind an edge.
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
        self, depth: NDArray[np.uint16], intrinsics: Map, rng: np.random.Generator, strength: float = 1.0
    ) -> NDArray[np.uint16]:
        """Returns a measurement of the true depth.

        Args:
            depth: (H, W), along the optical axis in millimetres; 0 where there is nothing.
            intrinsics: (3, 3) of these pictures, pixels.
            rng: Source of randomness.
            strength: Above 0, at most 1. Noise, steps and how far `grazing_deg` is from 90 are multiplied by it, and `edge` is
                divided by it. The range is the same for all.

        Returns:
            (H, W), millimetres; 0 where there is no measurement.
        """
        height, width = depth.shape
        normal = rng.standard_normal((height + 1, width), dtype=np.float32)
        fb = np.float32(self.focal_px * self.baseline_m)
        with np.errstate(divide="ignore", invalid="ignore"):  # Depth 0 is disparity 0, and what comes of it is not kept.
            inverse = np.where(depth > 0, np.float32(MILLIMETRES) / depth, np.float32(0.0))
            across, down = np.diff(inverse, axis=1), np.diff(inverse, axis=0)
            lost = self._grazing(inverse, across, down, intrinsics, strength)
            lost |= self._hidden(inverse, across, down, normal[1:], strength)
            disparity = fb * inverse + np.float32(self.spread_px * strength) * normal[:-1]
            step = np.float32(self.step_px * strength)
            disparity = step * np.rint(disparity / step)
            lost |= (disparity < fb / self.farthest_m) | (disparity > fb / self.nearest_m) | (depth == 0)
            found = np.rint(fb * np.float32(MILLIMETRES) / disparity)
        found[lost] = 0.0
        return found.astype(np.uint16)

    def _grazing(self, inverse: Map, across: Map, down: Map, intrinsics: Map, strength: float) -> NDArray[np.bool_]:
        """Says where (H, W) a surface is seen at too flat an angle.

        With i = 1 / z, affine in the pixel (x, y) from the principal point on a plane, the normal is along
        (f i_x, f i_y, i - x i_x - y i_y), and its product with the ray (x / f, y / f, 1) is i.
        """
        (height, width), focal = inverse.shape, intrinsics[0, 0]
        x = np.arange(width, dtype=np.float32) + np.float32(0.5) - intrinsics[0, 2]
        y = (np.arange(height, dtype=np.float32) + np.float32(0.5) - intrinsics[1, 2])[:, None]
        i_x, i_y = np.empty_like(inverse), np.empty_like(inverse)
        i_x[:, 0], i_x[:, -1], i_x[:, 1:-1] = across[:, 0], across[:, -1], _smaller(across[:, :-1], across[:, 1:])
        i_y[0], i_y[-1], i_y[1:-1] = down[0], down[-1], _smaller(down[:-1], down[1:])
        flattest = np.cos(np.radians(90.0 - (90.0 - self.grazing_deg) * strength))
        least = np.float32(1 / flattest**2) / (np.float32(1.0) + (x**2 + y**2) / focal**2)  # 1 / (cos^2 of the angle |ray|^2).
        least *= inverse
        least *= inverse
        towards = inverse - x * i_x
        towards -= y * i_y
        towards *= towards
        i_x *= i_x
        i_y *= i_y
        i_x += i_y
        i_x *= focal**2
        i_x += towards
        found: NDArray[np.bool_] = i_x > least
        return found

    def _hidden(self, inverse: Map, across: Map, down: Map, flicker: Map, strength: float) -> NDArray[np.bool_]:
        """Says where (H, W) a pixel is farther than one beside it, across an edge; `flicker` (H, W) is of a normal law."""
        bent = np.zeros_like(inverse)
        np.subtract(across[:, 1:], across[:, :-1], out=bent[:, 1:-1])
        np.maximum(bent[1:-1], down[1:] - down[:-1], out=bent[1:-1])
        least = np.abs(flicker) * np.float32(FLICKER * self.edge / strength)
        least += np.float32(STEADY * self.edge / strength)
        least += np.float32(ROUNDING_M) * inverse
        found: NDArray[np.bool_] = bent > least * inverse
        return found


def _smaller(before: Map, after: Map) -> Map:
    """Returns the smaller ones of the differences to both sides: beside an edge, those that lie on the pixel's own surface."""
    return np.where(np.abs(before) < np.abs(after), before, after)
