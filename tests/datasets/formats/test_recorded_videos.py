"""Raw recordings bring the images of the videos beside their numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
from stringline.datasets.formats.video import write_video

PER_STEP = 3  # Frames: 30 per second, 10 steps per second.


@pytest.fixture
def recording(tmp_path: Path, samples: Any) -> Path:
    """A recording with two cameras at 30 Hz; each third frame has the brightness of its step."""
    root = tmp_path / "demo"
    series = {
        "state": np.concatenate([samples.joints(n, e) for e, n in enumerate(LENGTHS)]),
        "action": np.concatenate([samples.joints(n, e + 100) for e, n in enumerate(LENGTHS)]),
    }
    replay_buffer(root / "replay_buffer.zarr", series)
    for number, steps in enumerate(LENGTHS):
        (root / f"videos/{number}").mkdir(parents=True)
        for camera in range(2):
            frames = [np.full((16, 24, 3), 90 * (i % PER_STEP), np.uint8) for i in range(3 * steps)]
            for step in range(steps):
                frames[PER_STEP * step][:] = 10 * step + 100 * camera
            write_video(
                root / f"videos/{number}/{camera}.mp4",
                frames,
                fps=30,
                codec="libx264",
                pixel_format="yuv420p",
                options={"crf": "5", "g": "2"},
            )
    return root


@pytest.mark.parametrize("name", ["", "replay_buffer.zarr"])
def test_videos_are_the_images_of_a_recording(recording: Path, imported: Import, name: str) -> None:
    reader = DiffusionPolicyReader(OPENINGS, control_hz=10, cameras={"0": "top", "1": "side"})
    store, outcome = imported(reader, recording / name)
    assert outcome.refused == {}
    for episode, steps in zip(store.episodes(), LENGTHS, strict=True):
        for first, camera in ((0, "top"), (100, "side")):
            brightness = episode.arrays[f"rgb/{camera}"].mean(axis=(1, 2, 3))
            np.testing.assert_allclose(brightness, first + 10 * np.arange(steps), atol=3)


def test_an_episode_without_its_videos_is_left_out(recording: Path, imported: Import) -> None:
    (recording / "videos/1/0.mp4").unlink()
    (recording / "videos/1/1.mp4").unlink()
    (recording / "videos/2/1.mp4").write_bytes(b"no video")
    store, outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=10), recording)
    assert len(store) == 1
    assert "There are no videos of it in" in outcome.refused["episode 1 (demo)"]
    assert "videos/2/1: 1.mp4 does not decode" in outcome.refused["episode 2 (demo)"]
