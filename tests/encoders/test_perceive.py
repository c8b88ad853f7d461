"""`stringline-perceive` trains, continues, measures, and writes results and a page."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.datasets.command.called import called
from tests.encoders.perception.conftest import coloured, moving
from tests.encoders.perception.test_detectors import scene

from stringline import ImageStore, ImageWriter, load_perception
from stringline.encoders.perceive import main, with_heads
from stringline.encoders.perception.perception_network import Examples
from stringline.encoders.perception.perception_run import InitialNetwork
from stringline.encoders.positions.rotary import Rotary
from stringline.policies import checkpoints

SHIPPED = Path(checkpoints.__file__).parent / "hand_over_banana"
SMALL = (
    "image_size=16",
    "head.image_encoder.dim=16",
    "head.image_encoder.depth=1",
    "head.image_encoder.heads=2",
    "head.image_encoder.embedding.patch=4",
    "trainer.batch_size=8",
    "trainer.learning_rate=0.01",
    "trainer.precision=no",
    "logger=null",
)

PLACES = ("coordinates=metric", "depth=channel")
OBJECTS = ("head.least_pixels=10",)  # Those of the scenes are small.


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of 30 images of three colours in five rooms."""
    with ImageWriter(tmp_path / "store") as writer:
        for number in range(30):
            name = ("blue", "green", "red")[number % 3]
            writer.add(coloured(name, number, captions=(f"a {name} wall",)))
    return tmp_path / "store"


def perceive(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    return called(main, *options)


def perceive_in_new_process(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a new process."""
    code = "from stringline.encoders.perceive import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_classifier_is_trained_continued_and_measured(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    options = ("task=classify", f"images={store}", f"output={output}", *SMALL, "trainer.steps=30")
    options = (*options, "probe_images=6", "trainer.probe_every=15")
    done = perceive_in_new_process(*options)
    assert done.returncode == 0, done.stderr
    assert "top1" in done.stdout
    results = json.loads((output / "results.json").read_text())
    assert [row["steps"] for row in results["curve"]] == [15, 30]
    assert results["curve"][-1]["top1"] == results["measures"]["top1"]
    assert "top1" not in results["intervals"], "one room is tested"
    assert "top1 has no interval. There are 1 groups" in done.stderr
    assert results["measures"]["top1"] >= 0.9, "colours are learned in 30 steps"
    assert results["images"] == {"train": 24, "test": 6}
    assert results["split"]["by"] == "room"
    page = (output / "predictions.html").read_text()
    assert page.count("<figure>") == 6
    right = round(6 * results["measures"]["top1"])
    assert page.count("Right.") == right
    assert page.count("Wrong: the true class is number") == 6 - right
    network = load_perception(output / "checkpoint")
    rooms = {ImageStore(store)[index].room for index in results["each"]["index"]}
    assert list(rooms) == results["split"]["held_out"]
    again = network.measure(Examples(ImageStore(store), results["each"]["index"], network.contract))
    assert list(again.each["correct"]) == results["each"]["correct"]
    weights = (output / "checkpoint" / "weights.safetensors").read_bytes()
    study = perceive(*options, "study=shuffled_patches", "study.permutations=1")
    assert "permutation 0" in study.stdout, study.stderr
    further = perceive(*options, "study=offset")
    assert "permutation 0" in further.stdout, "the rows of earlier studies stay"
    studies = json.loads((output / "results.json").read_text())["studies"]
    assert list(studies) == ["PatchShuffling", "CoordinateOffset"]
    assert (output / "checkpoint" / "weights.safetensors").read_bytes() == weights
    other = perceive(*options, "trainer.seed=3")
    assert other.returncode == 2
    assert "holds a run with other settings (trainer.seed)" in other.stderr
    assert perceive(*options, "trainer.steps=32").returncode == 0
    assert json.loads((output / "results.json").read_text())["curve"][-1]["steps"] == 32
    assert (output / "checkpoint" / "weights.safetensors").read_bytes() != weights


def test_a_task_is_the_head_of_that_name() -> None:
    assert with_heads(["task=classify", "images=x"]) == ["head=classify", "images=x"]


def test_what_is_not_a_store_is_named(tmp_path: Path) -> None:
    done = perceive("task=classify", f"images={tmp_path / 'none'}")
    assert done.returncode == 2
    assert "There is no store of images at" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "measure", "options"),
    [
        ("retrieve", "i2t_recall_at_1", ()),
        ("detect2d", "ap2d_50", OBJECTS),
        ("detect3d", "ap3d_25", OBJECTS),
    ],
)
def test_each_head_is_trained_and_measured(
    task: str, measure: str, options: Sequence[str], tmp_path: Path
) -> None:
    with ImageWriter(tmp_path / "scenes") as writer:
        for seed in range(6):
            image = scene(seed)
            name = image.objects[0].name
            writer.add(replace(image, room=f"room {seed}", captions=(f"a {name}",)))
    output = tmp_path / "run"
    done = perceive(
        f"task={task}",
        f"images={tmp_path / 'scenes'}",
        f"output={output}",
        *SMALL,
        *options,
        *PLACES,
        "minutes=0.001",
        "trainer.batch_size=3",
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((output / "results.json").read_text())
    assert results["measures"][measure] >= 0
    assert results["steps"] >= 1
    assert type(load_perception(output / "checkpoint")).__name__ == results["task"]


@pytest.fixture(scope="module")
def retrieval(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of scenes with captions, and a network of retrieval that was trained on it."""
    folder = tmp_path_factory.mktemp("retrieval")
    scenes, captions = folder / "scenes", folder / "captions"
    with ImageWriter(scenes) as writer:
        for seed in range(6):
            image = scene(seed)
            name = image.objects[0].name
            writer.add(replace(image, room=f"room {seed}", captions=(f"a {name} on a floor",)))
    options = (f"images={scenes}", *SMALL, "trainer.batch_size=3", *PLACES)
    done = perceive("task=retrieve", *options, f"output={captions}", "trainer.steps=3")
    assert done.returncode == 0, done.stderr
    return scenes, captions


@pytest.mark.slow
def test_a_detector_begins_with_the_towers_of_retrieval(
    retrieval: tuple[Path, Path], tmp_path: Path
) -> None:
    scenes, captions = retrieval
    boxes = tmp_path / "boxes"
    shared = (f"images={scenes}", *SMALL, "trainer.batch_size=3", *OBJECTS)
    begun = (
        *shared,
        *PLACES,
        f"output={boxes}",
        "trainer.steps=1",
        "trainer.learning_rate=1e-12",
    )
    initial = f"initialise_from={captions / 'checkpoint'}"
    second = perceive("task=detect3d", *begun, initial)
    assert second.returncode == 0, second.stderr
    towers, detector = (load_perception(run / "checkpoint") for run in (captions, boxes))
    assert detector.contract.tokeniser == towers.contract.tokeniser
    without = InitialNetwork(captions / "checkpoint", exclude=["text"])
    own = replace(detector.contract, tokeniser="its own")
    assert without.contract(own) == own, "a tokeniser belongs to its text tower"
    wanted, found = towers.state_dict(), detector.state_dict()
    shared_parts = [name for name in wanted if name.split(".")[0] in ("image_encoder", "text")]
    assert len(shared_parts) > 20
    for name in shared_parts:
        torch.testing.assert_close(found[name], wanted[name])
    other = perceive("task=detect3d", *begun, initial, "include=[image_encoder]")
    assert "holds a run with other settings" in other.stderr
    zero = tmp_path / "zero"
    flag = "head.image_encoder.zero_frequencies=true"
    third = perceive("task=detect3d", *begun, initial, flag, f"output={zero}")
    assert third.returncode == 0, third.stderr
    for encoding in load_perception(zero / "checkpoint").image_encoder.blocks.encodings:
        assert isinstance(encoding, Rotary)
        largest = encoding.frequencies().abs().max()
        assert largest < 1e-6, "the frequencies of the checkpoint are not taken"


@pytest.mark.slow
def test_measures_while_training_see_both_labels_of_each_pair(
    tmp_path: Path,
) -> None:
    with ImageWriter(tmp_path / "clips") as writer:
        for number in range(40):
            clip = moving(number % 2 == 0, number // 2)
            writer.add_clip(replace(clip, room=f"room {number // 2}"))
    given = ("task=video", f"images={tmp_path / 'clips'}", f"output={tmp_path / 'run'}", *SMALL)
    given = (*given, "head/image_encoder=places", "trainer.steps=2", "held_out=0.5")
    before = perceive(*given, f"output={tmp_path / 'before'}")
    assert before.returncode == 0, before.stderr
    again = perceive(*given, f"output={tmp_path / 'before'}", "probe_images=8")
    assert "trained without probe_images, so it has no curve" in again.stderr
    done = perceive(*given, "probe_images=8", "trainer.probe_every=1")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert all("within_pair" in row for row in results["curve"])


@pytest.mark.slow
def test_initial_weights_that_do_not_fit_are_named(
    retrieval: tuple[Path, Path], tmp_path: Path
) -> None:
    scenes, captions = retrieval
    shared = (f"images={scenes}", *SMALL, "trainer.batch_size=3", *OBJECTS)
    initial = f"initialise_from={captions / 'checkpoint'}"
    flat = perceive(
        "task=detect3d",
        *shared,
        "coordinates=grid",
        f"output={tmp_path / 'flat'}",
        initial,
    )
    assert flat.returncode == 2
    assert "do not fit this model" in flat.stderr
    assert "exclude=mismatched" in flat.stderr
    fitted = perceive(
        "task=detect3d",
        *shared,
        "coordinates=grid",
        f"output={tmp_path / 'flat'}",
        initial,
        "exclude=mismatched",
        "trainer.steps=1",
    )
    assert fitted.returncode == 0, fitted.stderr
    policy = perceive(
        "task=detect3d", *shared, f"output={tmp_path / 'policy'}", f"initialise_from={SHIPPED}"
    )
    assert "contains no network of perception; allowed: a checkpoint of " in policy.stderr
    nothing = perceive("task=detect3d", *shared, "include=[text]", f"output={tmp_path / 'none'}")
    assert "include needs a checkpoint; add initialise_from=CHECKPOINT." in nothing.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["study=frame_order"], "FrameOrder got images; allowed: clips."),
        (["study=resolution"], "sizes is [32, 48, 64]; allowed: up to 16, the side of"),
        (["held_out=room"], "held_out is 'room'; allowed: a share, or a list of names."),
    ],
)
def test_a_measurement_that_would_fail_is_refused_before_the_training(
    options: list[str], message: str, store: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    done = perceive("task=classify", f"images={store}", f"output={output}", *SMALL, *options)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (output / "checkpoint").exists()
