"""Videos of LeRobotDatasets: frames and times of each episode, its rate, and the unit of depth."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.lerobot_recordings import (
    CAMERA,
    DEPTH,
    FPS,
    LENGTHS,
    depth_metres,
    described,
    encode,
    parquet,
    recorded,
    with_columns,
)

from stringline.datasets.formats import image_codecs
from stringline.datasets.formats.lerobot import LeRobotReader


def stamped(root: Path, every: float, first: float = 0.0) -> None:
    """Sets the time stamps of each episode: from `first` on, `every` seconds."""

    def stamps(table: pa.Table) -> dict[str, Any]:
        frame = table["frame_index"].to_numpy()
        return {"timestamp": pa.array((first + every * frame).astype(np.float32))}

    with_columns(root, stamps)


@pytest.mark.parametrize("ends", [True, False])
def test_a_step_shows_the_nearest_frame_of_its_episode(
    tmp_path: Path, samples: Any, imported: Import, ends: bool
) -> None:
    """A video of 150 frames per second, steps at 50 Hz: every third frame belongs to a step."""
    root = recorded(samples, tmp_path / "set", "v3.0")
    for number, lengths in enumerate((LENGTHS[:2], LENGTHS[2:])):
        frames = [
            np.full((16, 24, 3), 20 * step if third == 0 else 250, np.uint8)
            for length in lengths
            for step in range(length)
            for third in range(3)
        ]
        path = root / f"videos/{CAMERA}/chunk-000/file-{number:03d}.mp4"
        encode(path, np.stack(frames), fps=3 * FPS)
    if not ends:
        (path,) = root.glob("meta/episodes/*/*.parquet")
        parquet(path, pq.read_table(path).drop_columns([f"videos/{CAMERA}/to_timestamp"]))
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert outcome.refused == {}
    for episode, steps in zip(store.episodes(), LENGTHS, strict=True):
        brightness = episode.arrays["rgb/cam_high"].mean(axis=(1, 2, 3))
        np.testing.assert_allclose(brightness, 20 * np.arange(steps), atol=6)


@pytest.mark.parametrize(("first", "frame"), [(0.1, 0), (0.02, 4), (-0.02, 0)])
def test_a_step_outside_of_its_episode_is_an_error(
    tmp_path: Path, samples: Any, imported: Import, first: float, frame: int
) -> None:
    """It would show the images of another episode in the same video."""
    root = recorded(samples, tmp_path / "set", "v3.0")
    stamped(root, 1 / FPS, first)
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert (len(store), len(outcome.refused)) == (0, 3)
    message = outcome.refused["episode 0 (data/chunk-000/file-000.parquet)"]
    where = f"outside of the episode in {CAMERA}, which is the part from 0 to 0.1 s of file-000.mp4"
    assert message.startswith(f"timestamp at frame {frame} is ")
    assert where in message


def test_the_rate_is_that_of_the_time_stamps(
    tmp_path: Path, samples: Any, imported: Import
) -> None:
    root = recorded(samples, tmp_path / "set", "v2.1", "image")
    described(root, fps=30)
    stamped(root, 0.1)
    outcome = imported(LeRobotReader(OPENINGS), root)[1]
    assert len(outcome.refused) == 3
    for message in outcome.refused.values():
        assert message.startswith("fps of meta/info.json is 30, but the time stamps are 0.1 s apar")
        assert message.endswith("Set the rate of the time stamps, format.control_hz=10.")
    outcome = imported(LeRobotReader(OPENINGS, control_hz=20), root)[1]
    assert all("format.control_hz is 20, but" in text for text in outcome.refused.values())
    store, outcome = imported(LeRobotReader(OPENINGS, control_hz=10), root)
    assert outcome.refused == {}
    assert {episode.attributes.contract.control_hz for episode in store.episodes()} == {10.0}


@pytest.mark.parametrize("every", [1001 / 1000 / FPS, 0.96 / FPS])
def test_small_differences_of_the_rate_and_lost_steps_are_allowed(
    tmp_path: Path, samples: Any, imported: Import, every: float
) -> None:
    root = recorded(samples, tmp_path / "set", "v2.1", "image")
    stamped(root, every)

    def with_gap(table: pa.Table) -> dict[str, Any]:
        time = table["timestamp"].to_numpy().copy()
        time[-1] += 0.5
        return {"timestamp": pa.array(time)}

    with_columns(root, with_gap)
    assert imported(LeRobotReader(OPENINGS), root)[1].refused == {}


@pytest.mark.parametrize("unit", [None, "mm", "m"])
def test_an_explicit_unit_of_depth_counts_for_videos(
    tmp_path: Path,
    samples: Any,
    imported: Import,
    caplog: pytest.LogCaptureFixture,
    unit: str | None,
) -> None:
    """A camera that counts in 0.1 mm gave LeRobot ten times as many, taken for `unit`."""
    root = recorded(samples, tmp_path / "set", "v3.0", "depth")
    if unit:
        info = json.loads((root / "meta/info.json").read_text())["features"][DEPTH]["info"]
        described(root, features={DEPTH: {"info": info | {"depth_unit": unit}}})
    stated = 1.0 if unit == "m" else 0.001
    image_codecs._tell.cache_clear()
    store, outcome = imported(LeRobotReader(OPENINGS, depth_unit_m=stated / 10), root)
    assert outcome.refused == {}
    found = store.episodes()[1].arrays["depth/cam_high"]
    np.testing.assert_allclose(found, 100 * depth_metres(8), atol=1)
    words = f"{stated / 10:g} m per number (format.depth_unit_m); the data say {stated:g}."
    assert any(words in message for message in caplog.messages)
