"""H.264 videos of episodes, such as images of a camera beside their depth in colours."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

POSTER_QUALITY = 5  # Of JPEG in FFmpeg: 2 (best) to 31.

# Five colours of matplotlib's viridis (Smith, van der Walt, 2015), from far to near.
_ANCHORS = np.array(
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float64
)
_COLOURS = np.stack(
    [np.interp(np.linspace(0, 4, 256), np.arange(5), channel) for channel in _ANCHORS.T], axis=1
).astype(np.uint8)


def depth_in_colours(depth: NDArray[np.uint16], nearest: float, farthest: float) -> Image:
    """Returns an image (H, W, 3) of depth (H, W): yellow is near, violet far, black no depth (0).

    All arguments are in the depth unit of the camera.
    """
    scale = 255.0 / max(farthest - nearest, 1.0)
    level = np.clip((farthest - depth.astype(np.float64)) * scale, 0, 255).astype(np.uint8)
    return np.where((depth == 0)[..., None], np.uint8(0), _COLOURS[level])


class Video:
    """Frames in memory, written as a file at the end.

    Each frame is an image (H, W, 3) with its depth (H, W), if any, on the right. The first frame
    sets the range of the depth colours of all frames.
    """

    def __init__(self) -> None:
        self._frames: list[Image] = []
        self._times: list[float] = []
        self._range: tuple[float, float] | None = None

    def __len__(self) -> int:
        """Returns the number of frames."""
        return len(self._frames)

    def add(self, time: float, rgb: Image, depth: NDArray[np.uint16] | None = None) -> None:
        """Appends a frame that was captured at `time`, seconds."""
        parts = [rgb]
        if depth is not None:
            if self._range is None:
                seen = depth[depth > 0]
                self._range = (
                    (float(np.quantile(seen, 0.02)), float(np.quantile(seen, 0.98)))
                    if seen.size
                    else (0.0, 1.0)
                )
            parts.append(depth_in_colours(depth, *self._range))
        self._frames.append(np.concatenate(parts, axis=1))
        self._times.append(time)

    def write(self, path: Path) -> None:
        """Encodes the video in real time; the file appears when it is complete."""
        if not self._frames:
            raise ValueError("A video needs at least one frame.")
        period = float(np.median(np.diff(self._times))) if len(self) > 1 else 1.0
        path.parent.mkdir(parents=True, exist_ok=True)
        frame_hz = Fraction(1.0 / period).limit_denominator(1000)
        encode(path, self._frames, frame_hz, self._frames[0].shape[:2])


def encode(path: Path, frames: Iterable[Image], frame_hz: Fraction, size: tuple[int, ...]) -> None:
    """Encodes images (H, W, 3) of a `size` (H, W) as MP4; the file appears when it is complete."""
    fresh = path.with_name(f".{path.name}")
    _encode(fresh, frames, frame_hz, size)
    fresh.replace(path)


def poster(path: Path) -> bytes:
    """Returns the last frame of a video as JPEG: the outcome of the episode."""
    with av.open(str(path)) as container:
        *_, last = container.decode(video=0)
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width = last.width
    encoder.height = last.height
    encoder.pix_fmt = "yuvj420p"
    encoder.time_base = Fraction(1, 1)
    encoder.options = {"qmin": str(POSTER_QUALITY), "qmax": str(POSTER_QUALITY)}
    packets = [*encoder.encode(last.reformat(format="yuvj420p")), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


def _encode(path: Path, frames: Iterable[Image], frame_hz: Fraction, size: tuple[int, ...]) -> None:
    # The halved colour resolution of yuv420p needs even sizes.
    height, width = (side + side % 2 for side in size)
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream(
            "libx264", rate=frame_hz, options={"crf": "27", "preset": "veryfast"}
        )
        stream.height = height
        stream.width = width
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # The other cores simulate.
        for image in frames:
            padded = np.pad(
                image,
                ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0)),
                mode="edge",
            )
            container.mux(stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")))
        container.mux(stream.encode())
