"""Videos in real time, in a format that browsers play."""

import io
from pathlib import Path

import av
import numpy as np
import pytest

from stringline.sim.rollout.video import Video, depth_in_colours, poster


def test_video_round_trip(tmp_path: Path) -> None:
    """Frames, rate, size, format and index at the front; the content is close to the images."""
    video, y = Video(), np.linspace(0, 255, 31).astype(np.uint8)
    images = [np.broadcast_to(np.roll(y, step)[:, None, None], (31, 32, 3)) for step in range(20)]
    for step, image in enumerate(images):
        video.add(step * 0.08, image, np.full((31, 32), 700, np.uint16))
    video.write(tmp_path / "new" / "video.mp4")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["video.mp4"]
    data = (tmp_path / "new" / "video.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    with av.open(str(tmp_path / "new" / "video.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert float(stream.average_rate or 0) == pytest.approx(12.5)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(frames) == 20
    for frame, image in zip(frames, images, strict=True):
        assert frame.shape == (32, 64, 3)
        assert np.abs(frame[:31, :32].astype(int) - image).mean() < 12


def test_depth_colours() -> None:
    """Near is bright, far is dark, none is black; out of range is clipped."""
    image = depth_in_colours(
        np.array([[0, 400, 500, 750, 1000, 2000]], np.uint16), 500, 1000
    ).astype(int)
    assert image[0, 0].tolist() == [0, 0, 0]
    assert image[0, 1].tolist() == image[0, 2].tolist() == [253, 231, 37]
    assert image[0, 4].tolist() == image[0, 5].tolist() == [68, 1, 84]
    assert image[0, 2].sum() > image[0, 3].sum() > image[0, 4].sum()


def test_no_frames(tmp_path: Path) -> None:
    """An empty video is refused; a video of one frame, without any depth, is legal."""
    with pytest.raises(ValueError, match="at least one frame"):
        Video().write(tmp_path / "none.mp4")
    video = Video()
    video.add(0.0, np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8), np.uint16))
    video.write(tmp_path / "one.mp4")
    assert (tmp_path / "one.mp4").stat().st_size > 0


def test_a_poster_is_the_last_frame(tmp_path: Path) -> None:
    video = Video()
    for level in (10, 120, 200):
        video.add(level / 100, np.full((34, 48, 3), level, np.uint8))
    video.write(tmp_path / "video.mp4")
    data = poster(tmp_path / "video.mp4")
    assert data.startswith(b"\xff\xd8\xff")
    with av.open(io.BytesIO(data), "r") as container:
        (frame,) = container.decode(video=0)
    image = frame.to_ndarray(format="rgb24")
    assert image.shape == (34, 48, 3)
    assert np.abs(image.astype(int) - 200).max() < 12
