"""Images of messages, compared with OpenCV, and video in messages, written by FFmpeg."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray
from tests.datasets.formats import mcap_recordings as recordings
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.mcap_recordings import Entry
from tests.datasets.formats.small_sets import MAKERS

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.message_images import ENCODINGS, image_of, video_frames

Image = NDArray[np.uint8]


def message(array: Image, encoding: str) -> dict[str, Any]:
    return recordings.raw(0, array, encoding)


# OpenCV names a mosaic by the second row from the second column on.
@pytest.mark.parametrize(
    ("encoding", "code"),
    [
        ("bayer_rggb8", cv2.COLOR_BayerBG2RGB),
        ("bayer_bggr8", cv2.COLOR_BayerRG2RGB),
        ("bayer_gbrg8", cv2.COLOR_BayerGR2RGB),
        ("bayer_grbg8", cv2.COLOR_BayerGB2RGB),
    ],
)
def test_mosaics_of_filters_have_the_colours_of_opencv(encoding: str, code: int) -> None:
    mosaic = np.random.default_rng(0).integers(0, 256, (16, 24)).astype(np.uint8)
    found = image_of("/a", 0, message(mosaic, encoding))
    inner = np.s_[1:-1, 1:-1]
    np.testing.assert_array_equal(found[inner], cv2.cvtColor(mosaic, code)[inner])
    grey = image_of("/a", 0, message(np.full((6, 8), 77, np.uint8), encoding))
    np.testing.assert_array_equal(grey, np.full((6, 8, 3), 77))


@pytest.mark.parametrize(
    ("encoding", "code"),
    [
        ("yuv422", cv2.COLOR_YUV2RGB_UYVY),
        ("uyvy", cv2.COLOR_YUV2RGB_UYVY),
        ("yuv422_yuy2", cv2.COLOR_YUV2RGB_YUY2),
        ("yuyv", cv2.COLOR_YUV2RGB_YUY2),
    ],
)
def test_yuv_has_the_colours_of_opencv(encoding: str, code: int) -> None:
    pairs = np.random.default_rng(0).integers(16, 236, (16, 24, 2)).astype(np.uint8)
    found = image_of("/a", 0, message(pairs, encoding)).astype(int)
    assert np.abs(found - cv2.cvtColor(pairs, code)).max() <= 2


def test_other_encodings_are_refused_with_the_list() -> None:
    with pytest.raises(ForeignDataError) as caught:
        image_of("/a", 3, message(np.zeros((4, 6), np.uint8), "nv12"))
    assert "/a at frame 3: There is no supported image encoding 'nv12'." in str(caught.value)
    assert all(encoding in str(caught.value) for encoding in ENCODINGS)
    with pytest.raises(ForeignDataError, match="has 5 columns; two share their colour in uyvy"):
        image_of("/a", 0, message(np.zeros((4, 5, 2), np.uint8), "uyvy"))


CODECS = {"h264": ("libx264", "annexb=1"), "h265": ("libx265", "annexb=1:log-level=none")}
FRAMES = 11


def packets(name: str, **options: str) -> list[bytes]:
    """Returns a video of the recordings' images, a frame in each packet; every fifth is a key."""
    codec, parameters = CODECS[name]
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, VideoCodecContext)
    context.width = 2 * recordings.WIDTH
    context.height = 64
    context.pix_fmt = "yuv420p"
    context.time_base = Fraction(1, 10)
    wanted = {"crf": "4", "bf": "0", "g": "5", "preset": "ultrafast", "tune": "zerolatency"}
    both = f"repeat-headers=1:bframes=0:keyint=5:min-keyint=5:scenecut=0:{parameters}"
    context.options = {**wanted, f"{codec[3:]}-params": both, **options}
    found = []
    for number in range(FRAMES):
        frame = VideoFrame.from_ndarray(shown(number), format="rgb24")
        frame.pts = number
        found += context.encode(frame)
    return [bytes(packet) for packet in (*found, *context.encode(None))]


def shown(frame: int) -> Image:
    return np.ascontiguousarray(
        np.kron(recordings.colours(4 * frame), np.ones((4, 2, 1), np.uint8))
    )


def video(data: list[bytes], name: str) -> Callable[[list[Entry]], list[Entry]]:
    """Returns a change that replaces the images of a recording by a video."""
    kind = "foxglove_msgs/msg/CompressedVideo"

    def change(entries: list[Entry]) -> list[Entry]:
        kept = [entry for entry in entries if not entry[0].startswith("/front/")]
        for number, packet in enumerate(data):
            stamp = recordings.header(number / 10)["stamp"]
            fields = {"timestamp": stamp, "frame_id": "eye", "data": packet, "format": name}
            kept.append(("/front/video", kind, number / 10, fields))
        return kept

    return change


def imported_video(path: Path, imported: Import, data: list[bytes], name: str) -> Any:
    recordings.write_ros2(path, video(data, name)(recordings.ros2_entries()))
    return imported(MAKERS["mcap"](cameras={"/front/video": "front"}), path)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("skipped", [0, 2])
def test_video_in_messages_is_imported(
    tmp_path: Path, imported: Import, name: str, skipped: int
) -> None:
    data = packets(name)
    assert len(data) == FRAMES
    data = data[skipped:]
    store, outcome = imported_video(tmp_path / "arm.mcap", imported, data, name)
    assert outcome.refused == {}
    reason = "frames before the first key frame do not decode"
    lost = 0 if skipped == 0 else 5 - skipped
    assert outcome.skipped_fields["/front/video at the beginning", reason] == (lost > 0)
    images = store.episodes()[0].arrays["rgb/front"]
    for place, image in enumerate(images):
        expected = shown(place + lost + skipped).astype(int)
        assert np.abs(image.astype(int) - expected).mean() < 12, place
    other = np.abs(images[0].astype(int) - shown(FRAMES - 1)).mean()
    assert other > 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: (data, "vp9"), "There is no supported format of video 'vp9'."),
        (lambda data: ([b"abc"], "h264"), "/front/video at frame 0 has no start code"),
        (lambda data: (data[1:4], "h264"), "/front/video has no key frame"),
        (lambda data: ([data[0], data[1][:9], *data[2:]], "h264"), "/front/video at frame "),
        (lambda data: ([*data[:3], b"", *data[4:]], "h264"), "/front/video at frame "),
    ],
    ids=["format", "no start code", "no key frame", "cut", "empty"],
)
def test_video_that_does_not_decode_is_left_out(
    tmp_path: Path, imported: Import, change: Any, message: str
) -> None:
    data, name = change(packets("h264"))
    _, outcome = imported_video(tmp_path / "arm.mcap", imported, data, name)
    (why,) = outcome.refused.values()
    assert message in why


def test_frames_that_change_their_order_are_refused() -> None:
    data = packets("h264", bf="2", tune="film", **{"x264-params": "annexb=1:bframes=2:b-adapt=0"})
    messages = [(n, {"data": each, "format": "h264"}) for n, each in enumerate(data)]
    with pytest.raises(ForeignDataError, match="/front at frame"):
        list(video_frames("/front", messages))
