"""Results survive interruption and are not mixed."""

from pathlib import Path

import pytest

from stringline.sim.results import EpisodeResult, ResultsFile, Summary


def result(seed: int, success: bool, stage: int = 1) -> EpisodeResult:
    """One episode that took a second per seed."""
    return EpisodeResult(seed, success, stage, f"stage {stage}", float(seed), 3, 20.0 + seed, 0.5)


def test_summary() -> None:
    """Rate, medians, and the stages in their order."""
    summary = Summary.of([result(1, True, 2), result(2, False, 0), result(3, True, 2), result(9, False, 1)])
    assert str(summary.rate) == "2/4 = 50 % [15, 85]"
    assert (summary.time_to_success_s, summary.inference_ms, summary.acceleration) == (2.0, 22.5, 0.5)
    assert list(summary.stages.items()) == [("stage 0", 1), ("stage 1", 1), ("stage 2", 2)]
    assert summary.to_dict()["rate"]["successes"] == 2
    assert Summary.of([result(1, False)]).time_to_success_s is None
    with pytest.raises(ValueError, match="no results"):
        Summary.of([])


def test_results_file_continues(tmp_path: Path) -> None:
    """What was added is there again, also after a line that was cut short, and adding goes on."""
    path = tmp_path / "new" / "results.jsonl"
    file = ResultsFile(path, {"task": "reach"})
    file.add(result(1, True))
    file.add(result(2, False))
    with path.open("a") as handle:
        handle.write('{"seed": 3, "succ')
    again = ResultsFile(path, {"task": "reach"})
    assert list(again.results.values()) == [result(1, True), result(2, False)]
    again.add(result(4, True))
    assert sorted(ResultsFile(path, {"task": "reach"}).results) == [1, 2, 4]


def test_other_evaluations_are_refused(tmp_path: Path) -> None:
    """The difference is named."""
    ResultsFile(tmp_path / "results.jsonl", {"task": "reach", "execute_steps": 24})
    with pytest.raises(ValueError, match="execute_steps: 24 there, 12 here"):
        ResultsFile(tmp_path / "results.jsonl", {"task": "reach", "execute_steps": 12})
