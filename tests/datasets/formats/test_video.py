"""Frames are those nearest to given times; encoding does not change the priority of the process."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.video import frames_at, write_video


def priorities() -> set[tuple[int, int]]:
    """Returns scheduling policy and priority of all threads of this process."""
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    return {
        (os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority)
        for thread in threads
    }


@pytest.mark.parametrize("codec", ["libsvtav1", "libx264"])
def test_encoding_keeps_the_priority_of_all_threads(codec: str, tmp_path: Path) -> None:
    """As root, since libsvtav1 needs the permission to take the highest real-time priority."""
    before, during = priorities(), []

    def frames() -> Iterator[NDArray[np.uint8]]:
        for place in range(4):
            during.append(priorities())
            yield np.full((48, 64, 3), 60 * place, np.uint8)

    path = tmp_path / "video.mp4"
    write_video(path, frames(), fps=10.0, codec=codec, pixel_format="yuv420p", options={"g": "2"})
    assert [*during, priorities()] == [before] * 5
    read = list(frames_at(path, "video", np.arange(4) / 10, fps=10.0))
    assert [int(frame.mean()) for frame in read] == pytest.approx([0, 60, 120, 180], abs=6)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A video of 12 frames at 30 Hz, each of the brightness of its number."""
    frames = [np.full((16, 24, 3), 20 * frame, np.uint8) for frame in range(12)]
    path, options = tmp_path / "clip.mp4", {"crf": "5", "g": "4", "bf": "2"}
    write_video(path, frames, fps=30, codec="libx264", pixel_format="yuv420p", options=options)
    return path


def shown(path: Path, times: ArrayLike, fps: float, *interval: float) -> list[int]:
    """Returns the numbers of the frames of `clip` at times in frames."""
    part: dict[str, Any] = {}
    if interval:
        part["interval"] = (interval[0] / 30, interval[1] / 30)
    found = frames_at(path, "clip", np.asarray(times) / 30, fps=fps, **part)
    return [round(float(frame.mean()) / 20) for frame in found]


def test_the_frame_of_a_time_is_the_nearest(clip: Path) -> None:
    assert shown(clip, [0, 3, 6, 9], 10) == [0, 3, 6, 9]
    assert shown(clip, [0, 1.5, 3, 4.5], 20) == [0, 1, 3, 4]  # Of two, the earlier one.
    assert shown(clip, [0.4, 2.6, 3.4, 8.49, 8.51], 30) == [0, 3, 3, 8, 9]
    assert shown(clip, np.arange(8) / 2, 30) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert shown(clip, [7, 11.4], 30) == [7, 11]


def test_frames_outside_of_an_interval_do_not_count(clip: Path) -> None:
    assert shown(clip, [2.6, 5.6], 20, 2, 6) == [3, 5]
    assert shown(clip, [2.4, 5.6], 20, 3, 7) == [3, 6]
    with pytest.raises(ForeignDataError, match=r"clip has 1 frames in clip.mp4 before 0.200 s; "):
        shown(clip, [5, 6], 30, 2, 6)
    with pytest.raises(ForeignDataError, match=r"clip at frame 0: clip.mp4 has no frame at 0.033"):
        shown(clip, [1, 2], 30, 2, 6)


def test_a_gap_in_a_video_is_named(clip: Path, tmp_path: Path) -> None:
    gap = tmp_path / "gap.mp4"
    with av.open(str(clip)) as source, av.open(str(gap), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(source.streams.video[0])):
            if packet.dts is not None and not 4 <= number < 8:
                packet.stream = stream
                target.mux(packet)
    assert shown(gap, [0, 8], 30) == [0, 8]
    with pytest.raises(ForeignDataError, match=r"clip at frame 1: gap.mp4 has no frame at 0.2"):
        shown(gap, [0, 6, 9], 30)
