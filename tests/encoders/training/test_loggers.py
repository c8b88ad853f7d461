"""What goes to TensorBoard and Weights & Biases arrives there: read back by their own packages."""

import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from stringline.encoders.training.loggers import TensorBoard, WeightsAndBiases


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    read = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    board = TensorBoard(directory=tmp_path, first_step=0)
    for step in (0, 1, 127, 128, 300, 2**31 + 5):
        board.log(step, {"loss": step / 3 - 1, "evaluation/success": 1e-30})
    board.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert len(list(RawEventFileLoader(str(file)).Load())) == 13, (
        "the version, and each figure of each step"
    )
    assert scalars(tmp_path)["loss"] == [
        (step, pytest.approx(step / 3 - 1)) for step in (0, 1, 127, 128, 300, 2**31 + 5)
    ]
    assert len(scalars(tmp_path)["evaluation/success"]) == 6


def test_a_continued_run_replaces_metrics_after_its_state(tmp_path: Path) -> None:
    for first, steps in ((0, range(10)), (6, range(6, 12))):
        board = TensorBoard(directory=tmp_path, first_step=first)
        for step in steps:
            board.log(step, {"loss": step + first / 100})
        board.close()
    expected = [(step, float(step)) for step in range(6)] + [
        (step, pytest.approx(step + 0.06)) for step in range(6, 12)
    ]
    assert scalars(tmp_path)["loss"] == expected


@pytest.mark.slow
def test_wandb_stores_a_run_without_a_network(tmp_path: Path) -> None:
    log = WeightsAndBiases(directory=tmp_path / "a_run", first_step=0, mode="offline")
    log.log(0, {"loss": 1.5})
    log.log(10, {"loss": 1.25})
    log.log(5, {"evaluation/success": 0.25})  # Of an evaluation that has ended later.
    log.close()
    (file,) = (tmp_path / "a_run" / "wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 20.0
    while b"evaluation/success" not in (
        data := file.read_bytes()
    ):  # A separate process of wandb writes it.
        assert time.monotonic() < deadline, data
        time.sleep(0.1)
    assert b"a_run" in data
    assert (tmp_path / "a_run" / "wandb_run").read_text() in file.name


def test_a_missing_wandb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        ValueError,
        match=r'needs wandb, which is not installed. Run: pip install "stringline\[wandb\]"',
    ):
        WeightsAndBiases(directory=tmp_path, first_step=0)
    with pytest.raises(
        ValueError, match=r"mode is 'offlin'; allowed: 'online', 'offline', 'disabled'"
    ):
        WeightsAndBiases(directory=tmp_path, first_step=0, mode="offlin")
