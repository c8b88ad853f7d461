"""Anomalies are found at the steps where they were inserted; a clean episode has no findings."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.conftest import Arrays, MakeEpisode

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.store.store import findings, runs

STEPS = 200


@pytest.fixture
def clean(make_episode: MakeEpisode) -> Arrays:
    """Four seconds of slow swinging; the gripper opens and closes."""
    arrays = make_episode(steps=STEPS)
    time = arrays["time"]
    motion = np.stack([np.sin(time), 0.5 + 0.4 * np.cos(3 * time)], axis=1).astype(np.float32)
    return arrays | {"action": motion, "joints/position": motion.copy()}


def found(tmp_path: Path, contract: Contract, arrays: Arrays) -> list[tuple[str, float, str]]:
    """Stores an episode and returns its findings."""
    store = EpisodeStore.create(tmp_path / "store")
    name = store.write(arrays, EpisodeAttributes(contract, "reach", 0))
    assert {finding.episode for finding in findings(store.episode(name))} <= {name}
    return [
        (finding.kind, round(finding.time_s, 3), finding.text)
        for finding in findings(store.episode(name))
    ]


def test_a_clean_episode_has_no_findings(tmp_path: Path, contract: Contract, clean: Arrays) -> None:
    assert found(tmp_path, contract, clean) == []


def test_stall(tmp_path: Path, contract: Contract, clean: Arrays) -> None:
    clean["joints/position"][50:120] = clean["joints/position"][50]
    assert found(tmp_path, contract, clean) == [("stall", 1.0, "nothing moves for 1.4 s")]


def test_a_short_pause_is_not_a_stall(tmp_path: Path, contract: Contract, clean: Arrays) -> None:
    clean["joints/position"][50:90] = clean["joints/position"][50]
    assert [entry for entry in found(tmp_path, contract, clean) if entry[0] == "stall"] == []


def test_jump(tmp_path: Path, contract: Contract, clean: Arrays) -> None:
    clean["action"][70:, 0] += 0.4
    ((kind, time_s, text),) = found(tmp_path, contract, clean)
    assert (kind, time_s) == ("jump", 1.4)
    assert text.startswith("action one/waist changes by 0.4")
    assert text.endswith(" rad within one step")


def test_grippers_beyond_their_range(tmp_path: Path, contract: Contract, clean: Arrays) -> None:
    clean["action"][:, 1] *= 1.3
    (entry,) = found(tmp_path, contract, clean)
    assert entry == (
        "gripper",
        0.0,
        "one/gripper: the commanded opening reaches 1.17; the range is 0 to 1",
    )


def test_a_gripper_that_stays_at_its_end(tmp_path: Path, contract: Contract, clean: Arrays) -> None:
    clean["joints/position"][:, 1] = np.minimum(clean["joints/position"][:, 1], 0.6)
    (entry,) = found(tmp_path, contract, clean)
    assert entry[0] == "gripper"
    assert "one/gripper: the measured opening stays at exactly 0.600 in" in entry[2]


def late_step(arrays: Arrays) -> None:
    arrays["time"][100:] += 0.05


def frames_out_of_order(arrays: Arrays) -> None:
    arrays["time/front"][10:] -= 0.09


def late_frame(arrays: Arrays) -> None:
    arrays["time/front"][10] -= 0.07


def frames_from_the_future(arrays: Arrays) -> None:
    arrays["time/wrist"] += 0.01


def old_frames(arrays: Arrays) -> None:
    arrays["frame/wrist"][30:50] = 10


@pytest.mark.parametrize(
    ("spoil", "time_s", "text"),
    [
        (late_step, 2.05, "a step takes 70 ms instead of 20 ms"),
        (frames_out_of_order, 0.8, "front: frame 10 was not captured after frame 9"),
        (late_frame, 0.88, "front: 150 ms without a frame before frame 11; the median is 80 ms"),
        (
            frames_from_the_future,
            0.0,
            "wrist: 67 steps refer to a frame captured up to 10 ms after them",
        ),
        (old_frames, 0.76, "wrist: 12 steps refer to a frame up to 380 ms old"),
    ],
)
def test_timing(
    tmp_path: Path,
    contract: Contract,
    clean: Arrays,
    spoil: Callable[[Arrays], object],
    time_s: float,
    text: str,
) -> None:
    spoil(clean)
    entries = [entry for entry in found(tmp_path, contract, clean) if entry[0] == "timing"]
    assert [entry[1] for entry in entries if entry[2].startswith(text)] == [time_s], entries


def test_runs_of_true_values() -> None:
    assert runs(np.array([True, True, False, True, False, False, True])) == [(0, 2), (3, 4), (6, 7)]
    assert runs(np.zeros(3, bool)) == []
    assert runs(np.zeros(0, bool)) == []
