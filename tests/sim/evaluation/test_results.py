"""Results survive interruption and are not mixed."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import stringline.sim.evaluation.results
from stringline.datasets.files.atomic import NoSpaceError
from stringline.sim.evaluation.results import (
    EpisodeResult,
    OtherEvaluationError,
    ResultsFile,
    Summary,
    read_results,
)
from stringline.sim.statistics.intervals import Rate


def result(seed: int, success: bool, stage: int = 1) -> EpisodeResult:
    """One episode that took a second per seed."""
    return EpisodeResult(seed, success, stage, f"stage {stage}", float(seed), 3, 20.0 + seed, 0.5)


def test_summary() -> None:
    """Rate, medians, and the stages in their order."""
    summary = Summary.of(
        [result(1, True, 2), result(2, False, 0), result(3, True, 2), result(9, False, 1)]
    )
    assert str(summary.rate) == "2/4 = 50 % [15, 85]"
    assert (summary.time_to_success_s, summary.inference_ms, summary.acceleration) == (
        2.0,
        22.5,
        0.5,
    )
    assert list(summary.stages.items()) == [("stage 0", 1), ("stage 1", 1), ("stage 2", 2)]
    assert summary.to_dict()["rate"]["successes"] == 2
    assert Summary.of([result(1, False)]).time_to_success_s is None
    with pytest.raises(ValueError, match="no results"):
        Summary.of([])


def test_summary_of_stages_and_measures() -> None:
    """Later stages count as reached; missing values are omitted from medians, not from the rate."""
    measured = [
        replace(result(seed, seed > 2, seed), limit_hits=seed / 10, inference_p95_ms=50.0)
        for seed in (0, 2, 3)
    ]
    lost = replace(
        result(7, False, 0), plans=0, inference_ms=0.0, acceleration=0.0, error="its process died"
    )
    old = result(8, False, 2)
    summary = Summary.of([*measured, lost, old, replace(result(9, False, 0), unstable=True)])
    assert summary.reached == {"stage 2": Rate(3, 6), "stage 3": Rate(1, 6)}
    assert summary.limit_hits == pytest.approx(0.5 / 3)
    assert summary.inference_p95_ms == 50.0
    assert summary.acceleration == 0.5
    assert (summary.incomplete, summary.unstable, summary.rate) == (1, 1, Rate(1, 6))
    plain = json.loads(json.dumps(summary.to_dict()))
    assert plain["reached"]["stage 2"]["successes"] == 3
    assert Summary.of([lost]).inference_ms is None


def test_results_file_continues(tmp_path: Path) -> None:
    """Stored results are read again, also after an incomplete line, and others can be added."""
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
    """The difference is named; an evaluation without a result leaves no file."""
    file = ResultsFile(tmp_path / "results.jsonl", {"task": "reach", "execute_steps": 24})
    assert list(tmp_path.iterdir()) == []
    file.add(result(1, True))
    with pytest.raises(OtherEvaluationError, match="execute_steps: 24 there, 12 here"):
        ResultsFile(tmp_path / "results.jsonl", {"task": "reach", "execute_steps": 12})
    versions = {"task": "reach", "execute_steps": 24, "start_spread": 1.0}
    with pytest.raises(OtherEvaluationError, match="start_spread: None there, 1.0 here") as error:
        ResultsFile(tmp_path / "results.jsonl", versions)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kept", range(0, 260, 13))
def test_cut_short_anywhere(tmp_path: Path, kept: int) -> None:
    """After a crash at any byte, complete lines are kept, and the run continues."""
    path = tmp_path / "results.jsonl"
    file = ResultsFile(path, {"task": "reach"})
    file.add(result(1, True))
    whole = path.read_bytes()
    file.add(result(2, False))
    path.write_bytes(path.read_bytes()[: len(whole) - 30 + kept])
    again = ResultsFile(path, {"task": "reach"})
    assert [result for result in (1, 2) if result not in again.results] in ([], [2], [1, 2])
    assert (1 in again.results) == (kept >= 29)  # Only the line feed may be missing.
    again.add(result(3, True))
    assert 3 in ResultsFile(path, {"task": "reach"}).results


def test_what_an_episode_has_drawn_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    file = ResultsFile(path, {"task": "reach"})
    file.add(result(1, True))
    file.add(replace(result(2, True), drawn={"dim_light": 0.25}))
    plain, drawn = map(json.loads, path.read_text().splitlines()[1:])
    assert "drawn" not in plain
    assert drawn["drawn"] == {"dim_light": 0.25}
    assert ResultsFile(path, {"task": "reach"}).results == file.results


def test_older_files_are_read(tmp_path: Path) -> None:
    """Without the numbers that a later version added."""
    path = tmp_path / "results.jsonl"
    old = {"seed": 4, "success": True, "stage": 1, "stage_name": "there", "time_s": 2.0, "plans": 3}
    path.write_text(
        '{"about": {"task": "reach"}}\n'
        + json.dumps(old | {"inference_ms": 9.0, "acceleration": 1.0})
        + "\n"
    )
    found = ResultsFile(path, {"task": "reach"}).results[4]
    assert (found.inference_ms, found.limit_hits, found.inference_p95_ms, found.unstable) == (
        9.0,
        None,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (
            ['{"about": {}}', '{"seed": 1, "vigour": 3}', "{}"],
            "line 2 has fields that this version does not know: vigour",
        ),
        (
            ['{"about": {}}', '{"seed": 1}'],
            "line 2 is not a result of an evaluation: it lacks success, stage, stage_name",
        ),
        (['{"about": {}}', '{"seed": 1, "succ', '{"seed": 2}'], "damaged at line 2 of 3"),
        (['{"seed": 1}'], "does not describe one"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, lines: list[str], answer: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=answer):
        read_results(path)
    assert path.read_text() == "\n".join(lines) + "\n"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Incomplete lines are removed, results stay, and with free space the run continues."""
    path = tmp_path / "results.jsonl"
    file = ResultsFile(path, {"task": "reach"})
    file.add(result(1, True))
    before = path.read_bytes()

    def write_half(descriptor: int, data: memoryview) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stringline.sim.evaluation.results, "write_all", write_half)
        with pytest.raises(NoSpaceError, match="make room"):
            file.add(result(2, True))
    assert path.read_bytes() == before
    assert 2 not in file.results
    file.add(result(2, True))
    assert sorted(ResultsFile(path, {"task": "reach"}).results) == [1, 2]
