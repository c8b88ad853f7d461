"""Every command's configuration composes with every choice, names classes, and has help."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.configuration import Configuration

CONFIGS = Path(__file__).parents[2] / "configs"
COMMANDS = sorted(
    path.relative_to(CONFIGS).with_suffix("").as_posix()
    for path in (*CONFIGS.glob("*.yaml"), *CONFIGS.glob("data/*.yaml"))
)


@cache
def groups(command: str) -> dict[str, list[str]]:
    """Returns the choices of each group of a command."""
    return Configuration(CONFIGS, command, command).groups()


def targets(settings: object) -> Iterator[str]:
    """Yields the names of the classes and functions in a plain configuration."""
    if isinstance(settings, dict):
        yield from ([settings["_target_"]] if "_target_" in settings else [])
        for value in settings.values():
            yield from targets(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from targets(value)


def lines(command: str) -> Iterator[list[str]]:
    """Yields command lines that together make every choice."""
    beside = [(group, options) for group, options in groups(command).items() if "/" not in group]
    for place in range(max((len(options) for _, options in beside), default=0)):
        yield [f"{group}={options[place % len(options)]}" for group, options in beside]
    yield from (
        [f"{group}={option}"]
        for group, options in groups(command).items()
        if "/" in group
        for option in options
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_choice_composes_and_names_what_exists(command: str) -> None:
    configuration, made = Configuration(CONFIGS, command, command), set[str]()
    for choices in lines(command):
        made |= set(choices)
        settings = configuration.composed(choices)
        assert isinstance(settings, DictConfig), choices
        for target in targets(OmegaConf.to_container(settings, resolve=True)):
            assert target.startswith("stringline."), (
                f"{choices}: other classes would not be built from a checkpoint"
            )
            assert callable(get_object(target)), choices
    assert made == {
        f"{group}={option}" for group, options in groups(command).items() for option in options
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_by_examples(command: str) -> None:
    introduction = Configuration(CONFIGS, command, command).introduction()
    assert introduction.split("\n")[0].endswith(".")
    assert "stringline-" + command.replace("/", " ") in introduction


def test_no_group_repeats_a_choice() -> None:
    texts: dict[str, Path] = {}
    for path in sorted(CONFIGS.rglob("*.yaml")):
        body = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
        assert body not in texts, f"{path} is {texts[body]} again"
        texts[body] = path


@pytest.mark.slow
def test_every_choice_belongs_to_a_command() -> None:
    offered = {group for name in COMMANDS for group in groups(name)}
    files = [
        path for path in CONFIGS.rglob("*.yaml") if path.parent not in (CONFIGS, CONFIGS / "data")
    ]
    assert {path.parent.relative_to(CONFIGS).as_posix() for path in files} == offered


@pytest.mark.parametrize(
    ("head", "augmentation"),
    [
        ("classify", "classify"),
        ("retrieve", "captions"),
        ("detect2d", "light"),
        ("detect3d", "light"),
        ("video", "light"),
    ],
)
def test_each_task_of_perception_has_its_own_augmentation_by_default(
    head: str, augmentation: str
) -> None:
    configuration = Configuration(CONFIGS, "perceive", "perceive")
    chosen = configuration.composed([f"head={head}", f"augmentation={augmentation}"])
    assert configuration.composed([f"head={head}"]).augmentation == chosen.augmentation
    without = configuration.composed([f"head={head}", "augmentation=none"])
    assert without.augmentation.transforms == []
