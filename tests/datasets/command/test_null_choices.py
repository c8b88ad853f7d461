"""`GROUP=null` leaves out an optional choice; other groups need one."""

from pathlib import Path

import pytest
from hydra import initialize_config_dir

from stringline.datasets.command.configuration import Configuration

PRIMARY = (
    "defaults: [inner, {logger: file}, {policy: flow}, _self_]\nsteps: 3\ntask: null\nrobot: arm\n"
)
INNER = "defaults: [{shift: null}]\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    for group, name in (
        ("shift", "dim"),
        ("logger", "file"),
        ("policy", "flow"),
        ("task", "of_another_command"),
        ("robot", "of_another_command"),
    ):
        (tmp_path / group).mkdir()
        (tmp_path / group / f"{name}.yaml").write_text(f"kind: {name}\n")
    (tmp_path / "bake.yaml").write_text(PRIMARY)
    (tmp_path / "inner.yaml").write_text(INNER)
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


def test_an_option_with_the_name_of_another_commands_group(configuration: Configuration) -> None:
    """Hydra takes it for a group, so that `task=null` would end with a traceback."""
    assert configuration.composed(configuration.without_null_choices(["task=null"])).task is None
    with pytest.raises(ValueError, match="The option 'robot' cannot be null"):
        configuration.without_null_choices(["robot=null"])


def test_an_unknown_optional_choice_is_refused(tmp_path: Path) -> None:
    """Hydra leaves out an optional choice that does not exist, without a message."""
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "banana.yaml").write_text("varied: false\n")
    (tmp_path / "bake.yaml").write_text("defaults: [_self_, optional recipe: mug]\n")
    configuration = Configuration(tmp_path, "bake", "stringline-bake")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        configuration.check_optional_choices(["recipe=banana", "steps=2"])
        with pytest.raises(ValueError, match="no recipe 'banan'. Did you mean 'banana'"):
            configuration.check_optional_choices(["recipe=banan"])
