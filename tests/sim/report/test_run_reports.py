"""The page of a comparison: rates, differences, and videos of the same starts side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from stringline.sim.evaluation.comparison import Comparison
from stringline.sim.evaluation.results import EpisodeResult, ResultsFile
from stringline.sim.evaluation.stored_evaluations import StoredEvaluation, read_evaluation
from stringline.sim.report.charts import EstimateRow, LearningCurve, curves_chart, estimates_chart
from stringline.sim.report.report import write_report
from stringline.sim.report.run_reports import comparison_report, labelled_tasks, side_by_side
from stringline.sim.rollout.rollout import Video
from stringline.sim.statistics.intervals import Rate


def evaluation(
    name: str, folder: Path, outcomes: str, videos: Sequence[int] = range(9), task: str = "reach"
) -> StoredEvaluation:
    """A stored evaluation with outcomes written as 0 and 1, and videos of some seeds."""
    results = [
        EpisodeResult(seed, done == "1", int(done), "reached", 3.0, 4, 20.0, 0.5)
        for seed, done in enumerate(outcomes)
    ]
    file = folder / name / task / "results.jsonl"
    stored = ResultsFile(file, {"task": task, "options": {}, "checkpoint": f"digest of {name}"})
    for result in results:
        stored.add(result)
    for seed in set(videos) & set(range(len(outcomes))):
        video = Video()
        video.add(0.0, np.zeros((32, 32, 3), np.uint8))
        video.write(file.parent / "videos" / f"{seed}.mp4")
    return read_evaluation(name, folder / name)


def test_the_page_of_a_comparison(tmp_path: Path) -> None:
    """Names are escaped; each start has the video of both policies."""
    runs = [evaluation("a<b>", tmp_path, "1111"), evaluation("b", tmp_path, "1000")]
    comparison = Comparison.of(runs)
    report = comparison_report(comparison, {"a<b>": "runs/a", "b": "runs/b"}, "stringline-compare")
    write_report(tmp_path / "compare.html", report)
    page = (tmp_path / "compare.html").read_text()
    assert "<b>," not in page
    assert "<h1>a&lt;b&gt;, b: comparison of policies</h1>" in page
    for part in (
        "Content-Security-Policy",
        '<section id="success">',
        '<section id="comparison">',
        "-75 [",
        "percentage points",
        "digest of b",
        "<h3>reach, seed 1</h3>",
        "<pre>stringline-compare</pre>",
    ):
        assert part in page
    assert page.count("data:video/mp4") == 2 * page.count("<h3>") == 8


def test_starts_that_differ_are_shown_first(tmp_path: Path) -> None:
    """Then one that all policies solve and one that none solves; without videos there are none."""
    a = evaluation("a", tmp_path, "110100100")
    b = evaluation("b", tmp_path, "111000111", videos=[0, 1, 2, 4, 5, 6, 7, 8])
    clips = side_by_side([a, b])
    assert [clip.run for clip in clips] == ["a", "b"] * 4
    # Of 0, 1 and 6 both succeed, of 4 and 5 neither; 2, 7 and 8 differ; 3 lacks a video.
    assert [clip.result.seed for clip in clips[::2]] == [0, 2, 4, 7]
    assert [clip.start for clip in clips[:2]] == ["reach, seed 0"] * 2
    c = evaluation("c", tmp_path, "11", videos=[])
    assert side_by_side([a, c]) == []


def test_policies_on_several_tasks_have_their_task_in_the_label(tmp_path: Path) -> None:
    evaluation("a", tmp_path, "10")
    both = evaluation("a", tmp_path, "10", task="push")
    assert list(labelled_tasks([both])) == ["a: push", "a: reach"]
    one = evaluation("b", tmp_path, "11")
    assert {clip.run for clip in side_by_side([both, one])} == {"a: reach", "b: reach"}


def test_charts() -> None:
    """Labels and legends are in the SVG; without curves there is no chart."""
    rows = [EstimateRow("rope_$1", 0.5, 0.25, 0.75, (0.4, 0.6))]
    assert "rope $1" in estimates_chart(rows, "x")
    assert "percentage points" in estimates_chart(rows, "x", differences=True)
    curve = LearningCurve(((0, 1.0), (1, 0.5)), (), ((1, 0.6),), ((1, Rate(3, 10)),))
    drawn = curves_chart({"rope": [curve, curve], "none": [], "empty": [LearningCurve()]})
    assert all(text in drawn for text in (">rope<", ">validation<", ">success<"))
    assert ">none<" not in drawn
    assert curves_chart({"empty": [LearningCurve()]}) == ""


def test_compared_evaluations_hold_the_common_seeds_only(tmp_path: Path) -> None:
    runs = [evaluation("a", tmp_path, "1111"), evaluation("b", tmp_path, "10")]
    found = Comparison.of(runs, seeds=2).evaluations
    assert [[sorted(task.results) for task in each.tasks] for each in found] == [[[0, 1]]] * 2
    with pytest.raises(ValueError, match="different seeds"):
        Comparison.of(runs)
