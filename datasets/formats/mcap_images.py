"""Images and calibrations in messages of ROS 2 and Foxglove."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import decoded
from stringline.datasets.formats.mcap_recording import Plain

IMAGE_KINDS = ("Image", "RawImage", "CompressedImage")
CALIBRATION_KINDS = ("CameraInfo", "CameraCalibration")

# Type of an element, and the channels that become red, green and blue; depth has one channel.
_ENCODINGS: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "rgb8": ("u1", 3, (0, 1, 2)),
    "bgr8": ("u1", 3, (2, 1, 0)),
    "rgba8": ("u1", 4, (0, 1, 2)),
    "bgra8": ("u1", 4, (2, 1, 0)),
    "mono8": ("u1", 1, (0, 0, 0)),
    "16UC1": ("u2", 1, ()),
    "mono16": ("u2", 1, ()),
    "32FC1": ("f4", 1, ()),
}
_PNG = b"\x89PNG"
_DEPTH_HEADER = 12  # Bytes before the PNG of image_transport's compressedDepth.


def image_of(key: str, frame: int, content: Plain) -> Array:
    """Returns the image of a message: (H, W, 3) uint8, or depth (H, W) uint16 or float32.

    Raw images are `sensor_msgs/Image` and `foxglove.RawImage`, the others compressed. Depth that is
    not finite means no return (REP 118) and becomes 0. Messages contain `key` and `frame`.
    """
    data = _bytes(key, frame, content.get("data"))
    if "encoding" in content:
        found = _raw(key, frame, content, data)
    elif "compressedDepth" in str(content.get("format")) and data[_DEPTH_HEADER:][:4] == _PNG:
        found = decoded(key, frame, data[_DEPTH_HEADER:])
    else:
        found = decoded(key, frame, data)
    return np.where(np.isfinite(found), found, 0) if found.dtype.kind == "f" else found


def _bytes(key: str, frame: int, data: Any) -> bytes:
    """Returns the bytes of an image; JSON has them as base64."""
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else bytes(data)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ForeignDataError(f"{key} at frame {frame} has no image bytes: {error}.") from error


def _raw(key: str, frame: int, content: Plain, data: bytes) -> Array:
    encoding = content["encoding"]
    if encoding not in _ENCODINGS:
        why = unknown_name("supported image encoding", encoding, _ENCODINGS)
        raise ForeignDataError(f"{key} at frame {frame}: {why}")
    kind, channels, order = _ENCODINGS[encoding]
    dtype = np.dtype(kind).newbyteorder(">" if content.get("is_bigendian") else "<")
    height, width, step = (int(content.get(name, 0)) for name in ("height", "width", "step"))
    row = width * channels * dtype.itemsize
    if height < 1 or width < 1 or step < row or len(data) < height * step:
        raise ForeignDataError(
            f"{key} at frame {frame} has {len(data)} bytes in rows of {step}; an image of "
            f"{height}x{width} as {encoding} has {height} rows of at least {row}."
        )
    rows = np.frombuffer(data, np.uint8, height * step).reshape(height, step)[:, :row]
    found = np.ascontiguousarray(rows).view(dtype).reshape(height, width, channels)
    return found[..., list(order)] if order else found[..., 0].astype(dtype.newbyteorder("="))


@dataclass(frozen=True)
class Calibration:
    """The intrinsics (3, 3) of images (height, width), and their distortion."""

    height: int
    width: int
    intrinsics: Array
    distortion_model: str
    distortion: tuple[float, ...]


def calibration_of(topic: str, contents: Sequence[Plain], *, rectified: bool) -> Calibration:
    """Returns the calibration in the messages of a topic, which must agree.

    `sensor_msgs/CameraInfo` has the centre of the first pixel at (0, 0), the contract at
    (0.5, 0.5). The projection matrix P applies to `rectified` images, K to others.
    """
    found = [_calibration(topic, content, rectified=rectified) for content in contents]
    if not found:
        raise ForeignDataError(f"{topic} has no messages.")
    for number, other in enumerate(found):
        if (
            (other.height, other.width, other.distortion)
            != (found[0].height, found[0].width, found[0].distortion)
        ) or not np.array_equal(other.intrinsics, found[0].intrinsics):
            raise ForeignDataError(f"{topic} changes at message {number}; a calibration is fixed.")
    return found[0]


def _calibration(topic: str, content: Plain, *, rectified: bool) -> Calibration:
    size = {name: int(content.get(name, 0)) for name in ("height", "width")}
    window = content.get("roi", {})
    part = any(window.get(name) not in (None, 0, size[name]) for name in size)
    if part or any(content.get(name, 0) > 1 for name in ("binning_x", "binning_y")):
        raise ForeignDataError(
            f"{topic} calibrates a larger image (roi, binning); allowed: the whole image."
        )
    K = _numbers(topic, content, "K", 9).reshape(3, 3)
    if rectified:
        K = _numbers(topic, content, "P", 12).reshape(3, 4)[:, :3]
    distortion = np.asarray(_field(content, "D"), np.float64)
    bent = not rectified and bool(distortion.any())
    if not (K[0, 0] > 0 and K[1, 1] > 0 and np.array_equal(K[2], (0, 0, 1))):
        raise ForeignDataError(f"{topic} has focal lengths {K[0, 0]:g} and {K[1, 1]:g}: not set?")
    K = K + np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    return Calibration(
        size["height"],
        size["width"],
        K.astype(np.float32),
        (str(content.get("distortion_model")) or "unknown") if bent else "none",
        tuple(distortion.tolist()) if bent else (),
    )


def _field(content: Plain, name: str) -> Any:
    """Returns a field whose name ROS 2 writes in lower case, Foxglove in upper case."""
    return content.get(name, content.get(name.lower(), ()))


def _numbers(topic: str, content: Plain, name: str, count: int) -> Array:
    found = np.asarray(_field(content, name), np.float64)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ForeignDataError(f"{topic} has no {name} of {count} finite numbers; got {found}.")
    return found
