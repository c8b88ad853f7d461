"""What the data decide, the share of image tokens with a position, and the record of a run."""

import logging
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hydra import compose, initialize_config_module
from tests.sim.points import AUGMENTATION, CAMERA, CONTRACT, MODEL, fill
from tests.sim.test_train_command import SMALL

from stringline import Camera, EpisodeAttributes, EpisodeStore, Trainer, train_policy
from stringline.sim.train import main
from stringline.sim.training.training_data import TrainingData
from stringline.sim.training.training_plan import (
    TrainingPlan,
    decided,
    with_policy_of_checkpoint,
)
from stringline.sim.training.training_settings import TrainingSettings

COLOUR = replace(CAMERA, depth=None)
UNCALIBRATED = replace(COLOUR, has_geometry=False)
GEOMETRY = ("intrinsics/", "T_base_camera/")


def _store(path: Path, camera: Camera, *, hole: bool = False, moves: bool = False) -> EpisodeStore:
    """Returns two episodes of a camera; with a hole, only a quarter of the image has depth."""
    full, store = EpisodeStore.create(path / "full"), EpisodeStore.create(path / "store")
    fill(full, range(2))
    for episode in full.episodes():
        arrays = {key: value.copy() for key, value in episode.arrays.items()}
        if hole:
            arrays["depth/overhead"][:, 16:] = 0
            arrays["depth/overhead"][:, :, 16:] = 0
        if moves:
            poses = np.tile(arrays["T_base_camera/overhead"], (len(arrays["time"]), 1, 1))
            poses[:, 2, 3] += np.linspace(0.0, 0.1, len(poses), dtype=poses.dtype)
            arrays["T_base_camera/overhead"] = poses
        if camera.depth is None:
            del arrays["depth/overhead"]
        kept = {
            key: value
            for key, value in arrays.items()
            if camera.has_geometry or not key.startswith(GEOMETRY)
        }
        contract = CONTRACT.with_cameras(camera)
        attributes = EpisodeAttributes(contract, "point", episode.attributes.seed, success=True)
        store.write(kept, attributes)
    return store


@pytest.mark.parametrize(
    ("camera", "hole", "line"),
    [
        (COLOUR, False, "0 % of the image tokens have a position (overhead 0 %); coordinates=rays"),
        (UNCALIBRATED, False, "have a position (overhead 0 %); coordinates=grid places them."),
        (CAMERA, False, "100 % of the image tokens have a position (overhead 100 %)."),
        (
            CAMERA,
            True,
            "25 % of the image tokens have a position (overhead 25 %); coordinates=rays",
        ),
    ],
)
def test_a_training_says_how_many_tokens_have_a_position(
    camera: Camera, hole: bool, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = _store(tmp_path, camera, hole=hole)
    trainer = Trainer(steps=1, batch_size=2, warmup_steps=1, precision="no")
    with caplog.at_level(logging.INFO, "stringline"):
        train_policy(MODEL, store, trainer, tmp_path / "run", TrainingSettings(held_out=0))
    found = [each for each in caplog.messages if "image tokens" in each]
    assert len(found) == 1
    assert line in found[0]


def _trained(
    store: EpisodeStore, output: Path, options: Iterable[str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Trains one step by the command and returns the description of the checkpoint."""
    line = [f"dataset.path={store.path}", f"output={output}", *SMALL, "logger=null", *options]
    monkeypatch.setattr(sys, "argv", ["stringline-train", *line, "trainer.steps=1"])
    main()
    description = yaml.safe_load((output / "checkpoint" / "checkpoint.yaml").read_text())
    assert isinstance(description, dict)
    return description


@pytest.mark.slow
@pytest.mark.parametrize(
    ("camera", "options", "expected"),
    [
        (
            COLOUR,
            (),
            ("RayPlaces", "None of overhead have depth and calibration, so coordinates=r"),
        ),
        (UNCALIBRATED, (), ("GridPlaces", "so coordinates=grid was chosen")),
        (COLOUR, ("coordinates=metric",), ("MetricPlaces", "coordinates=rays places them")),
        (CAMERA, (), ("MetricPlaces", "")),
    ],
    ids=["colour", "uncalibrated", "chosen", "depth"],
)
def test_the_default_coordinates_fit_the_data(
    camera: Camera,
    options: Iterable[str],
    expected: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, line = expected
    store = _store(tmp_path, camera)
    found = _trained(store, tmp_path / "run", options, monkeypatch)
    printed = [each for each in capsys.readouterr().err.splitlines() if "coordinates=" in each]
    assert len(printed) == bool(line)
    assert line in "".join(printed)
    assert f"stringline.{target}" in str(found["model"])
    choice = {"RayPlaces": "rays", "GridPlaces": "grid", "MetricPlaces": "metric"}[target]
    assert f"'coordinates': '{choice}'" in str(found["training"])
    assert ("[2.0, 64.0]" in str(found["model"])) == (choice == "grid")  # Its wavelengths.
    decided = found["training"].get("decisions", [])  # With the reasons that the log shows.
    assert any(line in each["reason"] for each in decided) == ("was chosen" in "".join(printed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moves", "options", "depth_m"),
    [
        (True, (), {"overhead": 0.3}),
        (False, (), {}),
        (
            True,
            ("coordinates=rays", "coordinates.places.depth_m={overhead: 0.2}"),
            {"overhead": 0.2},
        ),
        (True, ("coordinates=rays", "coordinates.places.depth_m={}"), {}),
    ],
    ids=["moves", "stands", "given", "none"],
)
def test_cameras_that_move_have_a_prior_depth(
    *,
    moves: bool,
    options: Iterable[str],
    depth_m: dict[str, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = _trained(_store(tmp_path, COLOUR, moves=moves), tmp_path / "run", options, monkeypatch)
    assert f"'depth_m': {depth_m}" in str(found["model"])
    told = "These cameras move: overhead. Their patches without depth are 0.3 m in front of them"
    assert (told in capsys.readouterr().err) == (depth_m == {"overhead": 0.3})


@pytest.mark.slow
def test_a_prior_depth_of_an_unknown_camera(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["coordinates=rays", "coordinates.places.depth_m={overhaed: 0.3}"]
    with pytest.raises(SystemExit):
        _trained(_store(tmp_path, COLOUR), tmp_path / "run", options, monkeypatch)
    assert (
        "coordinates.places.depth_m: There is no camera 'overhaed'. Did you mean 'overhead'?"
    ) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "options", "grid"),
    [
        ({"overhead": (480, 640)}, ("coordinates=grid",), [30, 40]),
        ({"overhead": (128, 128)}, ("coordinates=grid",), 8),
        ({"overhead": (480, 640)}, ("coordinates=patch_depth",), [30, 40]),
        ({"overhead": (480, 640)}, ("coordinates=grid", "coordinates.places.grid=8"), 8),
        ({"overhead": (480, 640)}, ("coordinates=relative",), 1),
        ({"overhead": (480, 640)}, ("policy/observation_encoder=vit",), [30, 40]),
        ({"overhead": (480, 640), "wrist": (128, 128)}, ("coordinates=grid",), [30, 40]),
    ],
)
def test_a_unit_of_the_grid_is_a_patch_of_the_images(
    sizes: dict[str, tuple[int, int]],
    options: tuple[str, ...],
    grid: object,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With 8 for each size of images, it was once 80 columns or 60 rows of 480x640 pixels."""
    cameras = [replace(CAMERA, name=name, height=h, width=w) for name, (h, w) in sizes.items()]
    data = TrainingData(_store(tmp_path, CAMERA), 0)
    contract = CONTRACT.with_cameras(*cameras)
    with initialize_config_module("stringline.configs", version_base=None):
        config = compose("train", [f"dataset.path={tmp_path}", "output=run", *options])
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, "stringline"):
        patch.setattr(TrainingData, "contract", property(lambda _: contract))
        found, decisions = decided(config, data, options)
    places = found.coordinates.places if "vit" not in options[0] else found.policy
    places = places if "vit" not in options[0] else places.observation_encoder
    assert places.grid == grid
    told = [each.reason for each in decisions if each.option.endswith(".grid")]
    assert len(told) == (grid == [30, 40])
    assert all("Images of 480x640 have " in each for each in told)
    assert all("a unit is 16 pixels." in each for each in told)
    assert ("In wrist it is 3.2 columns or 4.27 rows." in caplog.text) == ("wrist" in sizes)


def test_a_run_is_compared_by_all_settings_that_decide_its_weights(tmp_path: Path) -> None:
    data = TrainingData(_store(tmp_path, CAMERA), 0)
    trainer = Trainer(steps=1, batch_size=2, precision="no")

    def deciding(**changes: Any) -> dict[str, Any]:
        plan = TrainingPlan(MODEL, data, trainer, tmp_path, TrainingSettings(**changes))
        return dict(plan.record(10).deciding)

    plain = deciding()
    for changes, key in (
        ({"oversample_first_s": 1.0}, "early"),
        ({"oversample_factor": 2.0}, "early"),
        ({"equal_tasks": True}, "equal_tasks"),
        ({"pad_last_action_s": 1.0}, "pad_last_action_s"),
        ({"augmentation": AUGMENTATION}, "augmentation"),
    ):
        other = deciding(**changes)
        assert [name for name in plain if plain[name] != other[name]] == [key]
    assert deciding(validation_windows=3, augmentation=AUGMENTATION | {"transforms": []}) == plain


def test_a_training_takes_the_policy_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path, CAMERA)
    first = _trained(store, tmp_path / "first", ["coordinates=rays", "policy=flow"], monkeypatch)
    line = [f"dataset.path={store.path}", f"output={tmp_path / 'next'}", "policy=checkpoint"]
    line += [f"initialise_from={tmp_path / 'first' / 'checkpoint'}", "keep_normalisation=true"]
    line += ["trainer.batch_size=4", "trainer.precision=no", "trainer.steps=1", "logger=null"]
    monkeypatch.setattr(sys, "argv", ["stringline-train", *line])
    main()
    file = tmp_path / "next" / "checkpoint" / "checkpoint.yaml"
    assert yaml.safe_load(file.read_text())["model"] == first["model"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "policy=checkpoint needs a checkpoint; add initialise_from=CHECKPOINT"),
        (["initialise_from=kuka_pick", "encoder=rope"], "encoder has no effect with policy=chec"),
        (["initialise_from=kuka_pick", "action=gripper_poses"], "action has no effect"),
        (["initialise_from=nowhere"], "nowhere"),
    ],
)
def test_options_of_another_policy_are_refused_beside_that_of_a_checkpoint(
    options: list[str], message: str
) -> None:
    line = ["dataset.path=store", "policy=checkpoint", *options]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        config = compose("train", line)
    with pytest.raises(ValueError, match=message):
        with_policy_of_checkpoint(config, line)


def test_other_commands_refuse_the_policy_of_a_checkpoint(tmp_path: Path) -> None:
    store = _store(tmp_path, CAMERA)
    trainer = Trainer(steps=1, batch_size=2, warmup_steps=1, precision="no")
    with pytest.raises(ValueError, match="policy=checkpoint is a choice of stringline-train"):
        train_policy({"_checkpoint_": True}, store, trainer, tmp_path / "run")
