"""Each option of each command has one description and one declaration."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from omegaconf import OmegaConf
from tests.configs.test_composition import COMMANDS, CONFIGS, lines

from stringline.datasets.command.choices import (
    Keys,
    choice_names,
    class_arguments,
    descriptions,
    read_choice,
)
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.command.declarations import options as default_options

GROUPS = sorted(
    path.relative_to(CONFIGS).as_posix()
    for path in CONFIGS.rglob("*")
    if path.is_dir() and path.name not in ("data", "__pycache__")
)
NAMES = [f"{group}/{name}" for group in GROUPS for name in choice_names(CONFIGS, group)]
FILES = [*COMMANDS, *NAMES]
WIDEST = 128


def options(node: object, above: Keys = ()) -> Iterator[Keys]:
    """Yields the options that need a description.

    These are all except names with an underscore in front, values of other options (`${...}`),
    blocks of options, and the entries of a list without a class.
    """
    if isinstance(node, list):
        for number, item in enumerate(node):
            if isinstance(item, dict) and "_target_" in item:
                yield from options(item, (*above, str(number)))
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key.startswith("_"):
            continue
        if not (isinstance(value, dict) and value) and "${" not in str(value):
            yield *above, key
        yield from options(value, (*above, key))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_of_a_command_has_a_description(command: str) -> None:
    configuration = Configuration(CONFIGS, command, command)
    for choices in [[], *lines(command)]:
        settings = OmegaConf.to_container(configuration.composed(choices), resolve=False)
        described = {
            (*package, *keys)
            for file, package in configuration.files(choices).items()
            for keys in descriptions(CONFIGS, file)
        }
        values = {keys for keys in described if keys[-1].startswith("_")}
        lacking = [keys for keys in options(settings) if keys not in described - values]
        # Mappings that are values, such as {left: PORT}, are described as a whole.
        assert not [keys for keys in lacking if keys[:-1] not in described], choices


def test_no_file_repeats_the_default_of_a_class() -> None:
    """Without a value that equals the default, a choice is the same."""
    for file in FILES:
        choice = read_choice(CONFIGS, file)
        assert choice is not None
        # What a file changes of another one may be the default; an entry of a table has its name.
        if not choice.plain.get("defaults"):
            found = [keys for keys, value in repeated(choice.plain) if value != file.split("/")[-1]]
            assert found == [], f"{file} repeats defaults of its class"


def repeated(plain: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Yields the options of a choice that a class declares with the same value."""
    usual = default_options(class_arguments(plain))
    for key, value in plain.items():
        if key in usual and repr(usual[key]) == repr(value):
            yield (*above, key), value
        if isinstance(value, Mapping):
            yield from repeated(value, (*above, key))


def test_each_comment_is_a_whole_description_in_one_line() -> None:
    for path in sorted(CONFIGS.rglob("*.yaml")):
        rows = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        assert max(map(len, rows)) <= WIDEST, path
    for file in FILES:
        for keys, text in descriptions(CONFIGS, file).items():
            where = f"{file}, {'.'.join(keys)}: {text!r}"
            assert text.endswith((".", "!", ")", ".md", " ...")), f"{where} continues elsewhere"
            assert text.rstrip(".").lower() != keys[-1].replace("_", " "), where
