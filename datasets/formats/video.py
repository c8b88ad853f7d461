"""Reading and writing videos with PyAV, frame by frame."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import dropwhile, takewhile
from pathlib import Path

import av
import numpy as np
from av.codec import Codec
from av.codec.codec import UnknownCodecError
from av.container import InputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_PIXELS
from stringline.datasets.formats.checks import SAME_TIME_S
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import check_pixels

CONTAINER = "mov"  # FFmpeg's name of MP4.
CODECS = ("av1", "ffv1", "h264", "hevc", "mpeg4", "vp9")
CLIP_CODECS = (*CODECS, "mjpeg", "vp8")
# MP4 may name other files, too.
CLOSED = {"enable_drefs": "0", "protocol_whitelist": "file"}


def frames_at(
    path: Path,
    key: str,
    times: Array,
    *,
    fps: float,
    interval: tuple[float, float] = (0.0, math.inf),
    single_plane: bool = False,
) -> Iterator[Array]:
    """Decodes the frames of a video nearest to given times; messages contain `key`.

    Of two equally near frames it is the earlier one. A frame that is nearest to several times is
    repeated.

    Args:
        path: The file.
        key: Name of the series.
        times: (T,) s, increasing, in the clock of the video.
        fps: A frame is at most half of 1/`fps` from its time.
        interval: Start and end, s, of the part of the video that counts; a file of LeRobot v3.0
            contains several episodes.
        single_plane: Whether to return the first plane, (H, W) uint16, which contains depth.

    Yields:
        (H, W, 3) uint8, or (H, W) uint16.

    Raises:
        ForeignDataError: The file does not decode, or has no frame near one of the times.
    """
    if not path.is_file():
        raise ForeignDataError(f"{key}: there is no video {path.name} in {path.parent}.")
    tolerance = 0.5 / fps + SAME_TIME_S
    done = 0
    try:
        # FFmpeg would guess the container, among them playlists that name other files.
        with av.open(str(path), format=CONTAINER, options=dict(CLOSED)) as container:
            stream = _video_stream(container, f"{key}: {path.name}")
            half = 0.5 / float(stream.average_rate or fps)
            decoded = _decoded(container, stream, float(times[0]))
            before = takewhile(lambda shown: shown[0] < interval[1] - half, decoded)
            within = dropwhile(lambda shown: shown[0] < interval[0] - half, before)
            for time, frame in _nearest(within, times, tolerance):
                if abs(time - times[done]) > tolerance:
                    raise ForeignDataError(
                        f"{key} at frame {done}: {path.name} has no frame at {times[done]:.3f} s."
                    )
                if frame.is_corrupt:
                    raise ForeignDataError(
                        f"{key} at frame {done}: {path.name} is damaged at {time:.3f} s."
                    )
                yield _plane(frame) if single_plane else frame.to_ndarray(format="rgb24")
                done += 1
    except FFmpegError as error:
        raise ForeignDataError(
            f"{key} at frame {done}: {path.name} does not decode ({error.strerror})."
        ) from error
    if done < len(times):
        part = "" if math.isinf(interval[1]) else f" before {interval[1]:.3f} s"
        raise ForeignDataError(
            f"{key} has {done} frames in {path.name}{part}; the episode has {len(times)}."
        )


_Shown = tuple[float, VideoFrame]


def _nearest(shown: Iterable[_Shown], times: Array, tolerance: float) -> Iterator[_Shown]:
    """Yields the nearest frame of each time (T,), with its own time, from frames in order.

    It ends at the first time that lies more than `tolerance` behind the last frame.
    """
    done = 0
    before: _Shown | None = None
    for after in shown:
        while before is not None and done < len(times):
            if times[done] - before[0] > after[0] - times[done] + SAME_TIME_S:
                break
            yield before
            done += 1
        if done == len(times):
            return
        before = after
    while before is not None and done < len(times) and times[done] - before[0] <= tolerance:
        yield before
        done += 1


def size_and_rate(path: Path, key: str) -> tuple[int, int, float]:
    """Returns height, width and frames per second of a video; messages contain `key`."""
    try:
        with av.open(str(path), format=CONTAINER, options=dict(CLOSED)) as container:
            stream = _video_stream(container, f"{key}: {path.name}")
            if not stream.average_rate:
                raise ForeignDataError(f"{key}: {path.name} contains no video.")
            return stream.height, stream.width, float(stream.average_rate)
    except FFmpegError as error:
        raise ForeignDataError(f"{key}: {path.name} does not decode ({error.strerror}).") from error


def _video_stream(
    container: InputContainer, name: str, codecs: Sequence[str] = CODECS
) -> VideoStream:
    """Returns the stream of a container with one of the codecs, which decodes bounded images."""
    if not container.streams.video:
        raise ForeignDataError(f"{name} contains no video.")
    stream = container.streams.video[0]
    codec = stream.codec_context.codec.canonical_name
    if codec not in codecs:
        raise ForeignDataError(f"{name} has the codec {codec!r}; allowed: {', '.join(codecs)}.")
    check_pixels(name, stream.width, stream.height)
    # The size may change within the stream.
    stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}
    stream.thread_type = "AUTO"
    return stream


def _decoded(
    container: InputContainer, stream: VideoStream, start: float
) -> Iterator[tuple[float, VideoFrame]]:
    """Yields frames and their times in s, from the last key frame before `start` on."""
    base = stream.time_base or Fraction(1, 90000)
    container.seek(max(0, int(start / base)), stream=stream)
    for frame in container.decode(stream):
        yield float((frame.pts or 0) * base), frame


def _plane(frame: VideoFrame) -> Array:
    plane = frame.planes[0]
    rows: Array = np.frombuffer(memoryview(plane), np.uint16).reshape(
        frame.height, plane.line_size // 2
    )
    return rows[:, : frame.width].copy()


def check_encoder(codec: str) -> None:
    """Checks that an encoder exists."""
    try:
        Codec(codec, "w")
    except UnknownCodecError as error:
        raise ValueError(
            f"There is no video encoder {codec!r}; PyAV provides libsvtav1, libx264, libx265."
        ) from error


def write_video(
    path: Path,
    frames: Iterable[Array],
    *,
    fps: float,
    codec: str,
    pixel_format: str,
    options: Mapping[str, str],
) -> None:
    """Encodes at least one frame (H, W, 3) uint8, with FFmpeg's names of codec and pixel format."""
    # Otherwise libsvtav1 prints its configuration, 20 lines for each video.
    os.environ.setdefault("SVT_LOG", "1")
    rate = Fraction(fps).limit_denominator(1001)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=dict(options))
        assert isinstance(stream, VideoStream)
        stream.pix_fmt = pixel_format
        for number, array in enumerate(frames):
            if not number:
                stream.height, stream.width = array.shape[:2]
                with _priority_kept():
                    stream.codec_context.open()
            frame = VideoFrame.from_ndarray(np.ascontiguousarray(array), format="rgb24")
            frame.pts = number
            frame.time_base = 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


@contextmanager
def _priority_kept() -> Iterator[None]:
    """Restores the scheduling priority: as root, libsvtav1 takes the highest real-time priority.

    The calling thread and the threads of the encoder would keep it, and block all other processes,
    even the control loop of an arm.
    """
    if not hasattr(os, "sched_setscheduler"):
        yield
        return
    policy = os.sched_getscheduler(0)
    parameters = os.sched_getparam(0)
    before = _threads()
    try:
        yield
    finally:
        for thread in [0, *(_threads() - before)]:
            with suppress(ProcessLookupError):  # The thread has ended.
                os.sched_setscheduler(thread, policy, parameters)


def _threads() -> set[int]:
    """Returns the ids of the threads of this process."""
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


CONTAINERS = {".avi": "avi", ".mkv": "matroska", ".mov": "mov", ".mp4": "mov", ".webm": "matroska"}
"""FFmpeg's name of the container by the suffix of a file; FFmpeg would guess others."""
VIDEO_SUFFIXES = tuple(CONTAINERS)


# Headers of intact videos, too, may announce a few frames more than there are.
_LEAST_COMPLETE = 0.9


def evenly_spaced_frames(path: Path, key: str, count: int) -> list[Array]:
    """Returns `count` frames (H, W, 3) uint8, the middle of as many equal parts of a video.

    A video with fewer frames repeats some of them. Messages contain `key`.

    Raises:
        ForeignDataError: The file does not decode up to its end.
    """
    try:
        total = sum(1 for _ in _all_frames(path, key))
        if total < _LEAST_COMPLETE * _announced_frames(path):
            raise ForeignDataError(f"{key} is truncated after {total} frames.")
        wanted = [(2 * part + 1) * total // (2 * count) for part in range(count)]
        kept = {}
        for number, frame in enumerate(_all_frames(path, key)):
            if number in wanted:
                kept[number] = frame.to_ndarray(format="rgb24")
    except FFmpegError as error:
        raise ForeignDataError(f"{key} does not decode ({error.strerror}).") from error
    if not kept:
        raise ForeignDataError(f"{key} contains no frames.")
    return [kept[number] for number in wanted]


def _opened(path: Path) -> InputContainer:
    """Opens a file as the container of its suffix, with options that keep it from other files."""
    return av.open(str(path), format=CONTAINERS[path.suffix.lower()], options=dict(CLOSED))


def _announced_frames(path: Path) -> int:
    with _opened(path) as container:
        return container.streams.video[0].frames if container.streams.video else 0


def _all_frames(path: Path, key: str) -> Iterator[VideoFrame]:
    with _opened(path) as container:
        stream = _video_stream(container, key, CLIP_CODECS)
        for frame in container.decode(stream):
            if frame.is_corrupt:
                raise ForeignDataError(f"{key} is damaged.")
            yield frame
