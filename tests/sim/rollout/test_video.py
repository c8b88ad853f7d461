"""Films: what went in comes out, at the speed of life, in the form that browsers play."""

from pathlib import Path

import av
import numpy as np
import pytest

from stringline.sim.rollout.video import Film, depth_in_colours


def test_film_round_trip(tmp_path: Path) -> None:
    """Frames, rate, size, format and index at the front; the content is close to what was drawn."""
    film, y = Film(), np.linspace(0, 255, 31).astype(np.uint8)
    pictures = [np.broadcast_to(np.roll(y, step)[:, None, None], (31, 32, 3)) for step in range(20)]
    for step, picture in enumerate(pictures):
        film.add(step * 0.08, picture, np.full((31, 32), 700, np.uint16))
    film.write(tmp_path / "new" / "film.mp4")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["film.mp4"]
    data = (tmp_path / "new" / "film.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    with av.open(str(tmp_path / "new" / "film.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert float(stream.average_rate or 0) == pytest.approx(12.5)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(frames) == 20
    for frame, picture in zip(frames, pictures, strict=True):
        assert frame.shape == (32, 64, 3)
        assert np.abs(frame[:31, :32].astype(int) - picture).mean() < 12


def test_depth_colours() -> None:
    """Near is bright, far is dark, none is black; out of range is clipped."""
    picture = depth_in_colours(np.array([[0, 400, 500, 750, 1000, 2000]], np.uint16), 500, 1000).astype(int)
    assert picture[0, 0].tolist() == [0, 0, 0]
    assert picture[0, 1].tolist() == picture[0, 2].tolist() == [253, 231, 37]
    assert picture[0, 4].tolist() == picture[0, 5].tolist() == [68, 1, 84]
    assert picture[0, 2].sum() > picture[0, 3].sum() > picture[0, 4].sum()


def test_no_frames(tmp_path: Path) -> None:
    """An empty film is refused; a film of one frame, without any depth, is legal."""
    with pytest.raises(ValueError, match="at least one frame"):
        Film().write(tmp_path / "none.mp4")
    film = Film()
    film.add(0.0, np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8), np.uint16))
    film.write(tmp_path / "one.mp4")
    assert (tmp_path / "one.mp4").stat().st_size > 0
