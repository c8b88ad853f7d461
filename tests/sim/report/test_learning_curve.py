"""Histories beside checkpoints are read and left as they are."""

from contextlib import closing
from pathlib import Path

from stringline.encoders.training.monitor import History
from stringline.sim.report.charts import LearningCurve, learning_curve
from stringline.sim.statistics.intervals import Rate


def test_the_history_of_a_training_is_read(tmp_path: Path) -> None:
    """Losses, probes, validation losses and successes, up to a line that is cut short."""
    assert learning_curve(tmp_path / "checkpoint") == LearningCurve()
    with closing(History.open(tmp_path / "history.jsonl")) as history:
        for step in range(5):
            history.add(step=step, seconds=1.0 * step, loss=1 / (step + 1))
        history.add(step=4, probe={"explained": 0.5}, validation=0.25)
        history.add(step=4, evaluation={"success": 0.3, **Rate(3, 10).to_dict()})
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    before = (tmp_path / "history.jsonl").read_bytes()
    found = learning_curve(tmp_path / "checkpoint")
    assert list(found.losses) == history.losses()
    assert list(found.probes) == history.probes()
    assert len(found.losses) == 5
    assert list(found.validations) == history.validations() == [(4, 0.25)]
    assert found.successes == ((4, Rate(3, 10)),)
    assert (tmp_path / "history.jsonl").read_bytes() == before
