"""Choices: files and tables, completed by the defaults of classes, except those of their bases."""

from pathlib import Path

import pytest

from stringline.datasets.command.choices import (
    choice_names,
    completed,
    descriptions,
    read_choice,
)

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
