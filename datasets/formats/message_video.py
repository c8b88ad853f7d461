"""Video in messages: `foxglove.CompressedVideo`, in which each message holds one frame.

A message is H.264 or H.265 in Annex B, a stream of units behind start codes, without B-frames. The
first frame that decodes is a key frame, which repeats the parameters of the video.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from av import CodecContext, Packet
from av.codec.context import Flags
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_PIXELS
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import check_pixels
from stringline.datasets.formats.message_images import image_bytes
from stringline.datasets.formats.recording import Plain

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
