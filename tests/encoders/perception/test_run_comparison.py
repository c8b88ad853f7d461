"""Runs of perception are compared on the same images, trainings of one recipe together."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.encoders.perception.conftest import COLOURS, coloured
from tests.encoders.perception.test_average_precision import drawn
from tests.encoders.test_perceive import SMALL

from stringline.datasets.images.image_store import ImageStore, ImageWriter
from stringline.encoders.perceive import main
from stringline.encoders.perception.average_precision import AveragePrecision, Detection
from stringline.encoders.perception.perception_results import write_detections
from stringline.encoders.perception.run_comparison import (
    PerceptionRun,
    checked_measure,
    compare_runs,
    image_values,
    is_of_perception,
)
from stringline.sim import compare

RUNS = {
    "trained_0": ("trainer.steps=20", "trainer.learning_rate=0.01", "trainer.seed=0"),
    "trained_1": ("trainer.steps=20", "trainer.learning_rate=0.01", "trainer.seed=1"),
    "untrained_0": ("trainer.steps=1", "trainer.learning_rate=1e-9", "trainer.seed=0"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two trainings of one recipe, and one of another."""
    folder = tmp_path_factory.mktemp("runs")
    with ImageWriter(folder / "store") as writer:
        for number in range(60):
            image = coloured(list(COLOURS)[number % 3], number)
            writer.add(replace(image, room=f"room {number % 20}"))
    with pytest.MonkeyPatch.context() as patch:
        for name, options in RUNS.items():
            given = (
                "task=classify",
                *SMALL,
                *options,
                f"images={folder / 'store'}",
                f"output={folder / name}",
            )
            patch.setattr("sys.argv", ["stringline-perceive", *given])
            main()
    return folder


def read(folder: Path, *named: tuple[str, str]) -> list[PerceptionRun]:
    """Returns runs by recipe and folder."""
    return [PerceptionRun.read(name, folder / run) for name, run in named]


@pytest.mark.slow
def test_the_difference_is_that_of_the_means(runs: Path) -> None:
    (found,) = compare_runs(
        read(runs, ("cayley", "trained_0"), ("cayley", "trained_1"), ("none", "untrained_0"))
    )
    each = {
        name: np.mean(json.loads((runs / name / "results.json").read_text())["each"]["correct"])
        for name in RUNS
    }
    trained = (each["trained_0"] + each["trained_1"]) / 2
    assert found.measure == "top1"
    assert found.values == pytest.approx((trained, each["untrained_0"]))
    assert found.found.value == pytest.approx(trained - each["untrained_0"])
    assert found.found.low < found.found.value < found.found.high
    assert found.found.groups == 4, "rooms"
    assert found.trainings == (2, 1)


@pytest.mark.slow
def test_the_command_compares_runs_by_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(runs / name) for name in RUNS]
    output = tmp_path / "compared"
    names = "names=[trained,trained,untrained]"
    monkeypatch.setattr("sys.argv", ["stringline-compare", *paths, names, f"output={output}"])
    compare.main()
    text = capsys.readouterr().out
    assert text.startswith("trained less untrained: top1 +0.")
    assert "4 rooms" in text
    assert "2 and 1 trainings" in text
    assert text.endswith("One training says nothing about others of untrained.\n")
    (stored,) = json.loads((output / "compare.json").read_text())
    assert stored["first"] == "trained"
    assert 0 < stored["p_holm"] < 1


def test_what_is_not_comparable_is_named(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"have the name 'a' and different recipes \(trainer, 1 and 20 steps\)"
    ):
        compare_runs(read(runs, ("a", "trained_0"), ("a", "untrained_0"), ("b", "trained_1")))
    with pytest.raises(ValueError, match="have the name 'a' and the same seed 0"):
        compare_runs(read(runs, ("a", "trained_0"), ("a", "trained_0"), ("b", "trained_1")))
    with pytest.raises(ValueError, match=r"Got the recipes \['a'\]; allowed: two or more"):
        compare_runs(read(runs, ("a", "trained_0")))
    first, second = read(runs, ("a", "trained_0"), ("b", "untrained_0"))
    with pytest.raises(ValueError, match="baseline is 'c'; allowed: one of a, b"):
        compare_runs([first, second], "c")
    for key, value, message in (
        ("task", "Detector3d", "has the task Detector3d"),
        ("store", "0" * 16, "has the store of images 0000"),
        ("each", {"index": [1], "correct": [1.0]}, "have other test images"),
    ):
        other = replace(second, results={**second.results, key: value})
        with pytest.raises(ValueError, match=message):
            compare_runs([first, other])
    with pytest.raises(ValueError, match="is not a run of stringline-perceive"):
        PerceptionRun.read("a", tmp_path)
    with pytest.raises(ValueError, match="checkpoint is a part of a run; allowed: the run itself"):
        PerceptionRun.read("a", runs / "trained_0" / "checkpoint")
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    shutil.copy(runs / "trained_0" / "run.yaml", stopped)
    with pytest.raises(ValueError, match="stopped holds a run without results.json"):
        PerceptionRun.read("a", stopped)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="results.json lacks each, store"):
        PerceptionRun.read("a", tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(ValueError, match="holds no results of stringline-perceive"):
        PerceptionRun.read("a", tmp_path)
    assert is_of_perception(tmp_path)
    assert is_of_perception(runs / "trained_0" / "checkpoint")
    assert not is_of_perception(tmp_path / "nothing" / "at_all")


def test_a_setting_of_one_training_alone_is_named(runs: Path, tmp_path: Path) -> None:
    """Such as initial weights, which only some runs have."""
    first, second, other = read(runs, ("a", "trained_0"), ("a", "trained_1"), ("b", "untrained_0"))
    begun = tmp_path / "begun"
    shutil.copytree(second.path, begun)
    stored = yaml.safe_load((begun / "run.yaml").read_text())
    (begun / "run.yaml").write_text(yaml.dump(stored | {"initial": {"include": []}}))
    for trainings in ([first, replace(second, path=begun)], [replace(second, path=begun), first]):
        with pytest.raises(ValueError, match=r"different recipes \(initial\)"):
            compare_runs([*trainings, other])


def test_trainings_of_equal_minutes_may_have_other_steps(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, other = read(runs, ("a", "trained_0"), ("a", "trained_1"), ("b", "untrained_0"))
    timed = [
        replace(run, results={**run.results, "minutes": 1.0, "steps": steps})
        for run, steps in ((first, 16), (second, 27))
    ]
    compare_runs([*timed, other])
    longer = replace(timed[1], results={**timed[1].results, "minutes": 4.0})
    with pytest.raises(ValueError, match=r"different recipes \(minutes 4.0 and 1.0\)"):
        compare_runs([timed[0], longer, other])
    assert "The trainings of 'a' have 16, 27 steps, since minutes= decided" in caplog.text
    with pytest.raises(ValueError, match=r"different recipes \(minutes 1.0 and None\)"):
        compare_runs([first, timed[1], other])


def test_options_without_an_effect_are_refused(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(runs / name) for name in RUNS]
    monkeypatch.setattr("sys.argv", ["stringline-compare", *paths, "seeds=4"])
    with pytest.raises(SystemExit):
        compare.main()
    assert "seeds=4 has no effect on runs of stringline-perceive" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["stringline-compare", "runs/a", "runs/b", "measure=top1"])
    with pytest.raises(SystemExit):
        compare.main()
    assert "measure=top1 has no effect on evaluations of policies" in capsys.readouterr().err


def test_detections_are_compared_by_the_overlap_of_objects() -> None:
    results = {"each": {"iou_sum": [0.5, 1.0], "objects": [1.0, 3.0], "index": [4, 5]}}
    assert checked_measure(results, None) == "mean_iou"
    values, counts = image_values(results, "mean_iou")
    assert counts is not None
    assert values.sum() / counts.sum() == pytest.approx(0.375)
    ranks = {"each": {"i2t_rank": [0, 3]}}
    assert image_values(ranks, "i2t_recall_at_1")[0].tolist() == [1, 0]


def test_texts_are_compared_by_their_images() -> None:
    results = {"each": {"i2t_rank": [0, 3], "t2i_first": [2, 0], "texts": [3, 1]}}
    values, counts = image_values(results, "t2i_recall_at_1")
    assert counts is not None
    assert (values.tolist(), counts.tolist()) == ([2, 0], [3, 1])
    with pytest.raises(ValueError, match=r"'top1'.*Allowed: i2t_recall_at_1, t2i_recall_at_1"):
        image_values(results, "top1")


def detector_run(folder: Path, name: str, seed: int) -> PerceptionRun:
    """Returns a run of a detector with the predictions of a seed, on the same objects."""
    truth, _ = drawn(40)
    found = [
        [
            Detection(name=each.name, score=0.5, box2d=each.box2d + shift)
            for each, shift in zip(
                objects, np.tile(random.uniform(-seed, seed, (9, 2)), 2), strict=False
            )
            if each.box2d is not None
        ]
        for objects, random in zip(truth, np.random.default_rng(seed).spawn(40), strict=True)
    ]
    precision = AveragePrecision(truth, found, space="2d")
    path = folder / f"{name}_{seed}"
    path.mkdir()
    write_detections(path, precision)
    measures = {"ap2d": precision.value(), "ap2d_50": precision.at(0.5), "ap2d_75": None}
    objects = [float(len(objects)) for objects in truth]
    each = {"index": list(range(40)), "iou_sum": [0.0] * 40, "objects": objects}
    return PerceptionRun(
        name,
        path,
        {
            "task": "Detector2d",
            "store": "",
            "steps": 1,
            "seed": seed,
            "measures": measures,
            "each": each,
            "test_groups": list(range(40)),
        },
    )


@pytest.mark.slow
def test_detections_are_compared_by_average_precision(tmp_path: Path) -> None:
    runs = [detector_run(tmp_path, *each) for each in (("a", 2), ("a", 3), ("b", 7), ("b", 8))]
    for measure in ("ap2d", "ap2d_50"):
        (found,) = compare_runs(runs, measure=measure)
        values = [run.results["measures"][measure] for run in runs]
        assert found.values == pytest.approx((np.mean(values[:2]), np.mean(values[2:])))
        assert found.found.value == pytest.approx(found.values[0] - found.values[1])
        assert found.found.low < found.found.value < found.found.high
        assert found.trainings == (2, 2)
    with pytest.raises(ValueError, match=r"'ap2d_75'.*Allowed: ap2d, ap2d_50, mean_iou"):
        compare_runs(runs, measure="ap2d_75")


def test_detections_of_another_measurement_are_named(tmp_path: Path) -> None:
    runs = [detector_run(tmp_path, "a", 2), detector_run(tmp_path, "b", 7)]
    file = tmp_path / "b_7" / "detections.npz"
    shutil.copy(tmp_path / "a_2" / "detections.npz", file)
    with pytest.raises(ValueError, match=r"detections.npz has ap2d 0.* run the command of the run"):
        compare_runs(runs, measure="ap2d")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="detections.npz holds no detections: "):
        compare_runs(runs, measure="ap2d")
    file.unlink()
    with pytest.raises(ValueError, match=r"b_7 lacks detections.npz.*run it again"):
        compare_runs(runs, measure="ap2d")


def test_the_digest_is_that_of_the_content(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        with ImageWriter(tmp_path / name) as writer:
            writer.add(coloured("red", seed))
    digests = [ImageStore(tmp_path / name).digest() for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
