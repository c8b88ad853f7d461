"""Images in messages of ROS 2 and Foxglove: raw, of colour filters, YUV, compressed, and of videos.

A message is H.264 or H.265 in Annex B, a stream of units behind start codes, without B-frames. The
first frame that decodes is a key frame, which repeats the parameters of the video.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from av import CodecContext, Packet
from av.codec.context import Flags
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_PIXELS
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import check_pixels, decoded
from stringline.datasets.formats.recording import Plain

# Type of an element, and the channels that become red, green and blue; depth has one channel.
_CHANNELS: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "rgb8": ("u1", 3, (0, 1, 2)),
    "bgr8": ("u1", 3, (2, 1, 0)),
    "rgba8": ("u1", 4, (0, 1, 2)),
    "bgra8": ("u1", 4, (2, 1, 0)),
    "mono8": ("u1", 1, (0, 0, 0)),
    "16UC1": ("u2", 1, ()),
    "mono16": ("u2", 1, ()),
    "32FC1": ("f4", 1, ()),
}
_BAYER = {f"bayer_{tile}8": tile for tile in ("rggb", "bggr", "gbrg", "grbg")}
"""Colours of the filters of 2x2 pixels, row by row."""
_YUV = {"yuv422": 1, "uyvy": 1, "yuv422_yuy2": 0, "yuyv": 0}
"""The place of the brightness in the two bytes of a pixel; the other one is U or V in turn."""
ENCODINGS = (*_CHANNELS, *_BAYER, *_YUV)
_PNG = b"\x89PNG"
_DEPTH_HEADER = 12  # Bytes before the PNG of image_transport's compressedDepth.


def image_of(key: str, frame: int, content: Plain) -> Array:
    """Returns the image of a message: (H, W, 3) uint8, or depth (H, W) uint16 or float32.

    Raw images are `sensor_msgs/Image` and `foxglove.RawImage`, the others compressed. Depth that is
    not finite means no return (REP 118) and becomes 0. Messages contain `key` and `frame`.
    """
    data = image_bytes(key, frame, content)
    if "encoding" in content:
        found = _raw(key, frame, content, data)
    elif "compressedDepth" in str(content.get("format")) and data[_DEPTH_HEADER:][:4] == _PNG:
        found = decoded(key, frame, data[_DEPTH_HEADER:])
    else:
        found = decoded(key, frame, data)
    return np.where(np.isfinite(found), found, 0) if found.dtype.kind == "f" else found


def image_bytes(key: str, frame: int, content: Plain) -> bytes:
    """Returns the bytes of an image; JSON has them as base64."""
    data: Any = content.get("data")
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else bytes(data)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ForeignDataError(f"{key} at frame {frame} has no image bytes: {error}.") from error


def _raw(key: str, frame: int, content: Plain, data: bytes) -> Array:
    encoding = content["encoding"]
    if encoding not in ENCODINGS:
        why = unknown_name("supported image encoding", encoding, ENCODINGS)
        raise ForeignDataError(f"{key} at frame {frame}: {why}")
    kind, channels, order = _CHANNELS.get(encoding, ("u1", 1 if encoding in _BAYER else 2, ()))
    dtype = np.dtype(kind).newbyteorder(">" if content.get("is_bigendian") else "<")
    height, width, step = (int(content.get(name, 0)) for name in ("height", "width", "step"))
    check_pixels(f"{key} at frame {frame}", width, height)
    row = width * channels * dtype.itemsize
    if height < 1 or width < 1 or step < row or len(data) < height * step:
        raise ForeignDataError(
            f"{key} at frame {frame} has {len(data)} bytes in rows of {step}; an image of "
            f"{height}x{width} as {encoding} has {height} rows of at least {row}."
        )
    rows = np.frombuffer(data, np.uint8, height * step).reshape(height, step)[:, :row]
    found = np.ascontiguousarray(rows).view(dtype).reshape(height, width, channels)
    if encoding in _BAYER:
        return _without_filters(found[..., 0], _BAYER[encoding])
    if encoding in _YUV:
        if width % 2:
            raise ForeignDataError(
                f"{key} at frame {frame} has {width} columns; two share their colour in {encoding}."
            )
        return _without_subsampling(found, _YUV[encoding])
    return found[..., list(order)] if order else found[..., 0].astype(dtype.newbyteorder("="))


def _without_filters(mosaic: Array, tile: str) -> Array:
    """Returns the colours (H, W, 3) behind a mosaic of filters (H, W), interpolated linearly."""
    height, width = mosaic.shape
    result = np.empty((height, width, 3), np.uint8)
    for channel, colour in enumerate("rgb"):
        seen = np.zeros((height, width), np.float32)
        for place in range(4):
            seen[place // 2 :: 2, place % 2 :: 2] = tile[place] == colour
        mean = _blurred(mosaic * seen) / np.maximum(_blurred(seen), 1)
        result[..., channel] = np.where(seen, mosaic, np.floor(mean + 0.5))
    return result


def _blurred(image: Array) -> Array:
    """Returns sums (H, W) over 3x3 pixels with the weights 1 2 1, 2 4 2, 1 2 1; 0 outside."""
    rows = np.pad(image, ((1, 1), (0, 0)))
    mixed = rows[:-2] + 2 * rows[1:-1] + rows[2:]
    columns = np.pad(mixed, ((0, 0), (1, 1)))
    result: Array = columns[:, :-2] + 2 * columns[:, 1:-1] + columns[:, 2:]
    return result


# ITU-R BT.601 with a limited range, as cv_bridge converts it: from Y - 16, U - 128, V - 128.
_OF_YUV = np.array([[1.164, 0, 1.596], [1.164, -0.391, -0.813], [1.164, 2.018, 0]], np.float32)


def _without_subsampling(pairs: Array, brightness: int) -> Array:
    """Returns the colours (H, W, 3) of YUV 4:2:2 (H, W, 2), whose pixels have U and V in turn."""
    tint = pairs[..., 1 - brightness].astype(np.float32) - 128
    blue, red = (np.repeat(tint[:, start::2], 2, axis=1) for start in (0, 1))
    grey = pairs[..., brightness].astype(np.float32) - 16
    colours = np.stack([grey, blue, red], axis=-1) @ _OF_YUV.T
    result: Array = np.clip(np.rint(colours), 0, 255).astype(np.uint8)
    return result


VIDEO_KIND = "CompressedVideo"
NO_KEY_FRAME = "frames before the first key frame do not decode"
# FFmpeg's names of the codecs by Foxglove's, and of each the types of the units with the parameters
# and of those with a key frame (ITU-T H.264 table 7-1, H.265 table 7-1).
_CODECS = {
    "h264": ("h264", {7}, {5}),
    "h265": ("hevc", {33}, set(range(16, 22))),
}
_UNIT = re.compile(rb"\x00\x00\x01(.)", re.DOTALL)


def is_key_frame(key: str, number: int, content: Plain) -> bool:
    """Returns whether a message holds a frame that decodes without the frames before it."""
    name = _format(key, number, content)
    heads = [found[1][0] for found in _UNIT.finditer(image_bytes(key, number, content))]
    if not heads:
        raise ForeignDataError(
            f"{key} at frame {number} has no start code; allowed: {name} in Annex B, a frame in "
            "each message."
        )
    types = {head & 0x1F if name == "h264" else head >> 1 & 0x3F for head in heads}
    _, parameters, pictures = _CODECS[name]
    return bool(types & parameters) and bool(types & pictures)


def video_frames(key: str, messages: Iterable[tuple[int, Plain]]) -> Iterator[tuple[int, Array]]:
    """Yields the number of each message and its image (H, W, 3) uint8, from a key frame on.

    Raises:
        ForeignDataError: A message does not decode to one frame.
    """
    decoder: VideoCodecContext | None = None
    waiting: list[int] = []
    for number, content in messages:
        name = _format(key, number, content)
        decoder = decoder or _decoder(name)
        packet = Packet(image_bytes(key, number, content))
        packet.pts = number
        waiting.append(number)
        yield from _decoded(key, decoder, packet, waiting)
    if decoder is not None:
        yield from _decoded(key, decoder, None, waiting)
    if waiting:
        raise ForeignDataError(f"{key} at frame {waiting[0]} does not decode to an image.")


def _decoder(name: str) -> VideoCodecContext:
    decoder = CodecContext.create(_CODECS[name][0], "r")
    assert isinstance(decoder, VideoCodecContext)
    decoder.options = {"max_pixels": str(MOST_PIXELS)}
    decoder.thread_count = 1  # With more, frames come late.
    decoder.flags |= Flags.low_delay
    return decoder


def _decoded(
    key: str, decoder: VideoCodecContext, packet: "Packet[Any] | None", waiting: list[int]
) -> Iterator[tuple[int, Array]]:
    """Yields the frames that a packet completes, and takes them from `waiting`."""
    number = packet.pts if packet is not None else max(waiting, default=0)
    try:
        frames = decoder.decode(packet)
    except FFmpegError as error:
        raise ForeignDataError(
            f"{key} at frame {number} does not decode ({error.strerror})."
        ) from error
    for frame in frames:
        if frame.is_corrupt or not waiting or frame.pts != waiting[0]:
            raise ForeignDataError(f"{key} at frame {number} is damaged, or a frame is missing.")
        if frame.pict_type == PictureType.B:
            raise ForeignDataError(
                f"{key} at frame {frame.pts} is a B-frame, whose time is that of another message; "
                "foxglove.CompressedVideo allows none."
            )
        check_pixels(f"{key} at frame {frame.pts}", frame.width, frame.height)
        yield waiting.pop(0), frame.to_ndarray(format="rgb24")


def _format(key: str, number: int, content: Plain) -> str:
    name = str(content.get("format"))
    if name not in _CODECS:
        why = unknown_name("supported format of video", name, _CODECS)
        raise ForeignDataError(f"{key} at frame {number}: {why}")
    return name
