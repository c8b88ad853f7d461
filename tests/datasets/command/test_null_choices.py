"""`GROUP=null` leaves out an optional choice; other groups need one."""

from pathlib import Path

import pytest

from stringline.datasets.command.configuration import Configuration

PRIMARY = "defaults: [{shift: null}, {logger: file}, {policy: flow}, _self_]\nsteps: 3\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    for group, name in (("shift", "dim"), ("logger", "file"), ("policy", "flow")):
        (tmp_path / group).mkdir()
        (tmp_path / group / f"{name}.yaml").write_text(f"kind: {name}\n")
    (tmp_path / "bake.yaml").write_text(PRIMARY)
    return Configuration(tmp_path, "bake", "stringline-bake")


@pytest.mark.parametrize("group", ["shift", "logger"])
def test_null_leaves_a_choice_out(configuration: Configuration, group: str) -> None:
    given = configuration.without_null_choices([f"{group}=null", "steps=2"])
    settings = configuration.composed(given)
    assert group not in settings
    assert settings.steps == 2


def test_other_values_stay(configuration: Configuration) -> None:
    given = ["shift=dim", "logger=file", "steps=null", "~logger", "shift=null,dim"]
    assert configuration.without_null_choices(given) == given


def test_a_group_without_an_optional_choice_is_named(configuration: Configuration) -> None:
    with pytest.raises(ValueError, match="'policy' needs a choice, policy=NAME: flow"):
        configuration.without_null_choices(["policy=null"])
