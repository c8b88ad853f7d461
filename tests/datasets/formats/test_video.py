"""Encoding a video does not change the priority of the process."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

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
