"""A group's choice may be a class of another package, with its arguments as options.

Choices: files and tables, completed by the defaults of classes, except those of their bases.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from tests.datasets.extensions.conftest import WriteModule

from stringline.datasets.command.application import help_text
from stringline.datasets.command.choices import (
    choice_names,
    completed,
    descriptions,
    read_choice,
)
from stringline.datasets.command.configuration import Configuration

CONFIGS = Path(__file__).parents[3] / "configs"
TRAIN = Configuration(CONFIGS, "train", "stringline-train")
Compose = Callable[..., dict[str, Any]]

CLASSES = """
from dataclasses import dataclass, field

@dataclass(frozen=True, kw_only=True)
class Settings:
    '''Settings.

    Attributes:
        width: Width of the network.
    '''

    observation_encoder: object
    width: int
    sizes: tuple[int, ...] = (1, 2)
    name: str = "a"
    made: object = object()

class Policy:
    def __init__(self, settings: Settings, contract, statistics): pass

class Encoding:
    def __init__(self, heads, head_dim, axes, *, wavelengths, scale=2.0, seed=0):
        '''Builds it.

        Args:
            scale: Factor of the positions.

        Other Args:
            seed: Seed of the weights.
        '''

class Places:
    def __init__(self, perturbation=0.0): pass

class History:
    def __init__(self, ages_s, images=False): pass

class Encoder:
    def __init__(self, settings: "EncoderSettings", contract, statistics): pass

@dataclass(frozen=True)
class EncoderSettings:
    encoding: object
    coordinates: object
    dim: int = 64

class Task:
    pass
"""


@pytest.fixture
def composed(write_module: WriteModule) -> Compose:
    """Composes the configuration of stringline-train with choices of the module `own_choices`."""
    write_module("own_choices", CLASSES)

    def compose(*overrides: str) -> dict[str, Any]:
        plain = OmegaConf.to_container(TRAIN.composed(overrides))
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}

    return compose


def test_a_policy_has_its_settings_as_options(composed: Compose) -> None:
    policy = composed("policy=own_choices:Policy", "policy.width=3")["policy"]
    assert policy["_target_"] == "own_choices:Policy"
    assert (policy["width"], policy["sizes"], policy["name"]) == (3, [1, 2], "a")
    assert "made" not in policy
    assert policy["observation_encoder"]["_target_"] == "stringline.ObservationEncoder"
    assert policy["normalisation"]["_target_"] == "stringline.MinMaxNormaliser"
    assert composed("policy=own_choices:Policy")["policy"]["width"] == "???"


def test_parts_of_a_policy_may_be_classes(composed: Compose) -> None:
    settings = composed(
        "encoder=own_choices:Encoding",
        "coordinates=own_choices:Places",
        "history=own_choices:History",
        "policy/observation_encoder=own_choices:Encoder",
        "encoder.encoding.scale=3.0",
    )
    assert settings["encoder"]["encoding"] == {
        "_target_": "own_choices:Encoding",
        "_partial_": True,
        "wavelengths": "${coordinates.wavelengths}",
        "scale": 3.0,
    }
    assert settings["coordinates"]["places"] == {
        "_target_": "own_choices:Places",
        "perturbation": 0.0,
    }
    encoder = settings["policy"]["observation_encoder"]
    assert encoder["_target_"] == "own_choices:Encoder"
    assert (encoder["dim"], encoder["encoding"]) == (64, "${encoder.encoding}")
    assert encoder["history"] == {
        "_target_": "own_choices:History",
        "ages_s": "???",
        "images": False,
    }


def test_a_task_needs_no_file(composed: Compose) -> None:
    task = composed("task=own_choices:Task", "task.time_limit_s=3.0")["task"]
    assert (task["name"], task["time_limit_s"]) == ("own_choices:Task", 3.0)


@pytest.mark.slow
def test_entry_points_are_choices_and_files_come_first(
    composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"shortened": "own_choices:Policy", "flow": "own_choices:Policy"}
    found = {"policies": names}
    where = "stringline.datasets.command.choices.installed_classes"
    monkeypatch.setattr(where, lambda kind: found.get(kind, {}))
    assert composed("policy=shortened")["policy"]["_target_"] == "own_choices:Policy"
    assert composed("policy=flow")["policy"]["_target_"] == "stringline.FlowPolicy"
    assert "flow, keyposes, shortened" in " ".join(help_text(TRAIN).split())


def test_help_describes_the_options_of_a_class_by_its_docstring(composed: Compose) -> None:
    composed("policy=own_choices:Policy")
    text = " ".join(help_text(TRAIN, ["policy=own_choices:Policy"]).split())
    assert "width: ??? # Width of the network." in text
    text = " ".join(help_text(TRAIN, ["encoder=own_choices:Encoding"]).split())
    assert "scale: 2.0 # Factor of the positions." in text
    assert "seed" not in text.partition("encoding:")[2].partition("values")[0]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("policy=own_choices:Polcy", "Did you mean 'Policy'"),
        ("policy=own_choises:Policy", "no module 'own_choises' on Python's path"),
        ("policy=os:system", "'os' is part of Python"),
        ("task=own choices:Task", "is not the name of a class"),
    ],
)
def test_wrong_choices_are_reported(composed: Compose, choice: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        composed(choice)


TABLE = """\
# @package policy

_each_:
  encoding: {_partial_: true}
  values: true  # Relative values.
  known_as: _name_

# Learned frequencies
# without a basis.
mixed:
  encoding:
    _target_: stringline.RopeMixed
    still: 0.25

none:
  values: false  # No values.

far:
  known_as: far:_rest_
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with a table and files of one group."""
    group = tmp_path / "group"
    group.mkdir()
    (group / "choices.yaml").write_text(TABLE)
    (group / "flow.yaml").write_text("# A flow.\n_target_: stringline.FlowPolicy\nchunk: 8\n")
    (group / "energy.yaml").write_text(
        "defaults: [flow, _self_]\n_target_: stringline.EnergyPolicy\n_without_: [candidates]\n"
    )
    (group / "smaller.yaml").write_text("defaults: [flow, _self_]\ndim: 64 # Narrow.\n")
    return tmp_path


def test_a_table_has_a_choice_for_each_entry(folder: Path) -> None:
    assert choice_names(folder, "group") == ["energy", "flow", "mixed", "none", "smaller"]
    mixed, none = (read_choice(folder, f"group/{name}") for name in ("mixed", "none"))
    assert mixed is not None
    assert none is not None
    assert (mixed.package, mixed.description) == ("policy", "Learned frequencies\nwithout a basis.")
    assert completed(folder, "group/mixed") == {
        "encoding": {
            "_target_": "stringline.RopeMixed",
            "_partial_": True,
            "share_heads": True,
            "still": 0.25,
        },
        "values": True,
        "known_as": "mixed",
    }
    assert descriptions(folder, "group/mixed")["values",] == "Relative values."
    assert descriptions(folder, "group/none")["values",] == "No values."
    assert completed(folder, "group/far:away")["known_as"] == "far:away"
    for name in ("far", "mixed:more"):
        assert read_choice(folder, f"group/{name}") is None
    assert read_choice(folder, "group/choices") is None
    assert read_choice(folder, "group/other") is None


def test_a_class_adds_what_neither_the_file_nor_its_base_has(folder: Path) -> None:
    flow, energy = (completed(folder, f"group/{name}") for name in ("flow", "energy"))
    assert (flow["chunk"], flow["dim"], flow["noise_samples"]) == (8, 128, 4)
    assert energy["negatives"] == 4
    assert not {"chunk", "dim", "candidates", "_without_"} & set(energy)
    assert completed(folder, "group/smaller") == {"defaults": ["flow", "_self_"], "dim": 64}


def test_comments_and_docstrings_describe_options(folder: Path) -> None:
    assert descriptions(folder, "group/flow")["solver",].startswith("euler: one evaluation")
    assert descriptions(folder, "group/smaller") == {("dim",): "Narrow."}
