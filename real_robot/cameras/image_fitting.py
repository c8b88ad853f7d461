"""Fits images to the size for a policy: crops about the centre and scales, with intrinsics."""

from dataclasses import replace

import numpy as np

from stringline.real_robot.cameras.camera import Depth, Frame, Image, Matrix
from stringline.real_robot.cameras.camera_settings import CameraSettings


class Fitting:
    """Crops and scales frames to the delivered size.

    The crop is the largest one with the aspect ratio, or the one with the configured vertical field
    of view. Colours are averaged over areas; depth is taken at the nearest pixel, since a mean of
    two surfaces is neither.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._size = settings.size
        self._fovy_deg = settings.fovy_deg
        fx, fy, cx, cy = settings.intrinsics or (0.0,) * 4
        known = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], dtype=np.float32)
        self._intrinsics: Matrix | None = known if settings.intrinsics else None

    def __call__(self, frame: Frame) -> Frame:
        """Returns the fitted frame. Configured intrinsics override those of the camera."""
        intrinsics = frame.intrinsics if self._intrinsics is None else self._intrinsics
        top, left, rows, columns = self._part(
            frame.colour.shape[0], frame.colour.shape[1], intrinsics
        )
        window = np.s_[top : top + rows, left : left + columns]
        down = self._size[0] / rows
        across = self._size[1] / columns
        return replace(
            frame,
            colour=_scaled_colour(frame.colour[window], self._size),
            depth=None if frame.depth is None else _scaled_depth(frame.depth[window], self._size),
            intrinsics=None if intrinsics is None else _moved(intrinsics, top, left, down, across),
        )

    def _part(
        self, height: int, width: int, intrinsics: Matrix | None
    ) -> tuple[int, int, int, int]:
        """Returns the first row and column of the crop, and its rows and columns."""
        shape = self._size[1] / self._size[0]
        rows = min(float(height), width / shape)
        if self._fovy_deg is not None and intrinsics is not None:
            rows = min(rows, 2 * float(intrinsics[1, 1]) * np.tan(np.radians(self._fovy_deg) / 2))
        kept = max(1, round(rows))
        columns = max(1, min(width, round(rows * shape)))
        return (height - kept) // 2, (width - columns) // 2, kept, columns


def _moved(intrinsics: Matrix, top: int, left: int, down: float, across: float) -> Matrix:
    """Returns the intrinsics of a crop from `top`, `left` on, scaled by `down` and `across`."""
    moved = intrinsics.astype(np.float64)
    moved[0, 2] -= left
    moved[1, 2] -= top
    moved[0] *= across
    moved[1] *= down
    return moved.astype(np.float32)


def _scaled_colour(colour: Image, size: tuple[int, int]) -> Image:
    if colour.shape[:2] == size:
        return np.ascontiguousarray(colour)
    # Imported only by processes of cameras that scale.
    from av import VideoFrame

    frame = VideoFrame.from_ndarray(np.ascontiguousarray(colour), format="rgb24")
    scaled = frame.reformat(width=size[1], height=size[0], format="rgb24", interpolation="AREA")
    return np.ascontiguousarray(scaled.to_ndarray(), dtype=np.uint8)


def _scaled_depth(depth: Depth, size: tuple[int, int]) -> Depth:
    rows, columns = (
        np.minimum(((np.arange(count) + 0.5) * have / count).astype(int), have - 1)
        for have, count in zip(depth.shape, size, strict=True)
    )
    return np.ascontiguousarray(depth[np.ix_(rows, columns)])
