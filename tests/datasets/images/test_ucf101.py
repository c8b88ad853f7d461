"""Clips of UCF101."""

from pathlib import Path

import numpy as np
import pytest
from tests.datasets.images.labelled_items import read_all
from tests.datasets.images.small_image_sets import write_clip

from stringline import LabelledClip, Ucf101Clips
from stringline.datasets.formats.foreign import ForeignDataError


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two classes; one of the videos is truncated, one is short."""
    write_clip(tmp_path / "Archery" / "v_Archery_g01_c01.avi", 40)
    write_clip(tmp_path / "Archery" / "v_Archery_g08_c02.avi", 3)
    write_clip(tmp_path / "Diving" / "v_Diving_g02_c01.avi", 40)
    whole = (tmp_path / "Diving" / "v_Diving_g02_c01.avi").read_bytes()
    (tmp_path / "Diving" / "v_Diving_g02_c03.avi").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "Diving" / "v_Diving_g02_c04.avi").write_bytes(b"#EXTM3U\nother.avi\n")
    return tmp_path


def test_clips_have_frames_over_the_whole_video(videos: Path) -> None:
    found, left_out = read_all(Ucf101Clips(frames=8), videos)
    assert [(each.label, each.source) for each in found] == [
        ("Archery", "g01"),
        ("Archery", "g08"),
        ("Diving", "g02"),
    ]
    assert isinstance(found[0], LabelledClip)
    assert found[0].rgb.shape == (8, 48, 64, 3)
    brightness = found[0].rgb.mean((1, 2, 3))
    expected = 255 * (np.arange(8) * 5 + 2.5) / 40
    np.testing.assert_allclose(brightness, expected, atol=8)
    short = found[1].rgb.mean((1, 2, 3))  # Repeats its three frames.
    assert (np.diff(short) >= 0).all()
    assert left_out == {("clips", "truncated or damaged: the video does not decode"): 2}


def test_split_files_choose_clips(videos: Path) -> None:
    listed = videos / "trainlist01.txt"
    listed.write_text(
        "Archery/v_Archery_g08_c02.avi 1\nDiving/v_Diving_g09_c01.avi 2\n"
        "Archery/v_Archery_g01_c01.avi 1\n"
    )
    found, left_out = read_all(Ucf101Clips(frames=2, listed=str(listed)), videos)
    assert [each.source for each in found] == ["g08", "g01"]
    assert left_out == {("clips", "the file is missing"): 1}
    listed.write_text("../secret.avi 1\n")
    with pytest.raises(ForeignDataError, match="names files outside of"):
        read_all(Ucf101Clips(listed=str(listed)), videos)
    with pytest.raises(ForeignDataError, match=r"split file none.txt cannot be read"):
        read_all(Ucf101Clips(listed="none.txt"), videos)
    with pytest.raises(ValueError, match=r"frames must be an integer of at least 1 \(got 0\)"):
        Ucf101Clips(frames=0)
