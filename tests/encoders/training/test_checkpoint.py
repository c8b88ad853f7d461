"""Checkpoints contain plain data only and are replaced as a whole; errors state the fault."""

import os
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from stringline.datasets.files.atomic import replaced_directory
from stringline.encoders.training.checkpoint import (
    build,
    load_description,
    load_weights,
    save_checkpoint,
)


def test_round_trip(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    save_checkpoint(tmp_path / "c", model, {"model": {"size": [2, 3]}})
    other = nn.Linear(2, 3)
    load_weights(tmp_path / "c", other)
    assert torch.equal(model.weight, other.weight)
    assert load_description(tmp_path / "c")["model"] == {"size": [2, 3]}
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        "checkpoint.yaml",
        "weights.safetensors",
    ]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_files_have_the_permissions_of_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    """The safetensors library creates files that only their owner can read."""
    before = os.umask(mask)
    try:
        save_checkpoint(tmp_path / "c", nn.Linear(2, 3), {"model": 1})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {mode}


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", nn.Linear(2, 3), {"model": 1})

    def fill_the_disk() -> None:
        with replaced_directory(tmp_path / "c") as fresh:
            (fresh / "weights.safetensors").write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match=r"full"):
        fill_the_disk()
    assert load_description(tmp_path / "c")["model"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "stringline.datasets.store.store.os.remove",
        "stringline.datasets.contract.argument_checks.difflib",
        "subprocess.Popen",
        "stringline..x",
        "stringline.encoders.training.trainer.nn.Linear",
    ],
)
def test_foreign_targets_are_rejected(target: str) -> None:
    with pytest.raises(
        ValueError, match=r"only build classes of stringline|There is no public name"
    ):
        build({"_target_": target, "command": "true"})


@pytest.mark.parametrize(
    "target", ["stringline.policies.diffusion.DiffusionPolicy", "stringline.DifusionPolicy"]
)
def test_old_and_misspelt_names_are_reported_with_the_nearest_public_name(target: str) -> None:
    with pytest.raises(
        ValueError, match=rf"no public name '{target}'. Did you mean 'stringline.DiffusionPolicy'"
    ):
        build({"_target_": target})


def test_trainers_and_the_like_are_classes_of_this_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRINGLINE_TRUST", "torch,mine")
    for target in ("torch.nn:Linear", "mine:Trainer"):
        with pytest.raises(ValueError, match=r"cannot be built here; allowed: classes of Str"):
            build({"_target_": target, "in_features": 1, "out_features": 1})


def test_invalid_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="unexpected keyword argument 'stesp'.*Its arguments"):
        build({"_target_": "stringline.Trainer", "steps": 1, "batch_size": 1, "stesp": 3})


def test_nested_configurations_are_built() -> None:
    built = build(
        {"a": [{"_target_": "stringline.Trainer", "steps": 2, "batch_size": 1}], "b": "text"}
    )
    assert built["a"][0].steps == 2
    assert built["b"] == "text"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "checkpoint.yaml is missing"),
        ("a: [", "not valid YAML"),
        ("- 1", "key .format. is missing"),
        (
            yaml.safe_dump({"format": 99, "code": "stringline 9"}),
            "format 99, written by stringline 9.*Upgrade",
        ),
    ],
)
def test_broken_descriptions_are_rejected(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "checkpoint.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_description(tmp_path)


def test_checkpoints_of_format_1_keep_the_meaning_of_their_places(tmp_path: Path) -> None:
    """Later versions have other defaults; what a description states itself stays."""
    places = {"_target_": "stringline.MetricPlaces"}
    own = {**places, "depth_pooling": "median"}
    rays = {"_target_": "stringline.RayPlaces", "plane_m": None}
    model = {"observation_encoder": {"coordinates": places}, "others": [own, rays, "x"]}
    for number in (1, 2):
        text = yaml.safe_dump({"format": number, "model": model})
        (tmp_path / "checkpoint.yaml").write_text(text)
        read = load_description(tmp_path)["model"]
        if number == 2:
            assert read == model
            continue
        assert read["observation_encoder"]["coordinates"] == {
            **places,
            "depth_pooling": "mean",
            "missing_depth": "centroid",
        }
        assert read["others"] == [
            {**own, "missing_depth": "centroid"},
            {**rays, "depth_pooling": "mean"},
            "x",
        ]
        assert build(read["observation_encoder"]["coordinates"], nn.Module).depth_pooling == "mean"
    save_checkpoint(tmp_path / "new", nn.Linear(2, 3), {"model": model})
    assert load_description(tmp_path / "new")["model"] == model


def test_weights_of_another_model_are_rejected(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", nn.Linear(2, 3), {})
    with pytest.raises(ValueError, match=r"of another shape: .*weight \(3, 2\) for \(4, 2\)"):
        load_weights(tmp_path / "c", nn.Linear(2, 4))
    (tmp_path / "c" / "weights.safetensors").write_bytes(b"12345678")
    with pytest.raises(ValueError, match=r"weights.safetensors cannot be read"):
        load_weights(tmp_path / "c", nn.Linear(2, 3))


def test_aliases_of_a_description_that_stand_for_too_much_are_refused(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    text = f"format: 1\nl0: &l0 [a]\n{levels}model: {{_target_: stringline.Trainer, steps: *l8}}\n"
    (tmp_path / "checkpoint.yaml").write_text(text)
    with pytest.raises(ValueError, match="has more than 1000000 entries; allowed: fewer"):
        load_description(tmp_path)


def test_a_description_cannot_run_a_command(tmp_path: Path) -> None:
    """Only public classes are built, anywhere in the description."""
    witness = tmp_path / "witness"
    foreign = {"_target_": "os.system", "command": f"touch {witness}"}
    for configuration in (foreign, {"_target_": "stringline.Trainer", "steps": foreign}, [foreign]):
        with pytest.raises(ValueError, match="can only build classes of stringline"):
            build(configuration)
    (tmp_path / "checkpoint.yaml").write_text(
        f"format: 1\nmodel: !!python/object/apply:os.system ['touch {witness}']\n"
    )
    with pytest.raises(ValueError, match="is not valid YAML"):
        load_description(tmp_path)
    assert not witness.exists()
