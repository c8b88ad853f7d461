"""Recipes: named overrides of the commands that make a policy, checked before anything runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml

import stringline
from stringline.datasets.command.application import hydra_value
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.command.user_errors import explain
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.files.limits import parse_yaml, read_yaml

# Options that are lists or mappings of overrides, which Hydra's grammar does not allow unquoted.
LISTS_OF_OVERRIDES = ("recipes", "train", "collect", "evaluate", "correct", "retrain")
# What the experiment itself sets, by command.
RESERVED: Mapping[str, tuple[str, ...]] = {
    "stringline-train": ("output", "trainer.seed"),
    "stringline-collect": ("output", "task", "episodes"),
    "stringline-eval": (
        *("checkpoint", "output", "task", "suite", "suite_file"),
        *("seeds", "first_seed", "workers", "videos"),
    ),
}
CONFIGURATIONS = {
    "stringline-train": "train",
    "stringline-collect": "collect",
    "stringline-eval": "eval",
}


@dataclass(frozen=True)
class TrainingRecipe:
    """A named way to make a policy.

    Attributes:
        name: Name of the recipe, and of its folder.
        train: Overrides of `stringline-train`.
        collect: Overrides of `stringline-collect`; empty: the recipe uses the common data.
    """

    name: str
    train: tuple[str, ...]
    collect: tuple[str, ...] = ()

    @classmethod
    def parse(cls, name: str, plain: object) -> Self:
        """Reads a recipe: a list of overrides of training, or a mapping with `train`, `collect`."""
        where = f"The recipe {name!r}"
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError(
                f"{where} has a name that is not allowed; allowed: letters, digits and _ . -, "
                f"because it names a folder."
            )
        parts = plain if isinstance(plain, Mapping) else {"train": plain}
        for key in parts:
            if key not in ("train", "collect"):
                raise unknown_name(f"part of the recipe {name!r}", str(key), ("train", "collect"))
        train, collect = (overrides_of(parts.get(key), where) for key in ("train", "collect"))
        return cls(name, train, collect)


def overrides_of(plain: object, where: str) -> tuple[str, ...]:
    """Returns a list of overrides `key=value`; messages of errors begin with `where`."""
    if plain is None:
        return ()
    listed: list[str] = []
    for override in plain if isinstance(plain, list) else [plain]:
        if not isinstance(override, str) or not ("=" in override or override.startswith("~")):
            raise ValueError(
                f"{where} has {override!r}; allowed: a list of overrides, such as "
                f"[encoder=rope_mixed, trainer.steps=3000]."
            )
        listed.append(override)
    return tuple(listed)


def names_data(overrides: Sequence[str]) -> bool:
    """Returns whether overrides of a training choose its stores."""
    return any(
        key_of(override) in ("dataset", "dataset.path", "dataset.stores") for override in overrides
    )


def key_of(override: str) -> str:
    """Returns the option of an override, without the signs that add or delete it."""
    return override.lstrip("+~").partition("=")[0]


def parse_recipes(plain: object, file: str | None) -> tuple[TrainingRecipe, ...]:
    """Reads the recipes of the settings, or of a YAML file with the same mapping.

    Raises:
        ValueError: There are none, a recipe is wrong, or two recipes are the same.
    """
    if file is not None:
        plain = read_yaml("The file of recipes", Path(file))
    if not isinstance(plain, Mapping) or not plain:
        raise ValueError(
            f"recipes is {plain!r}; allowed: a mapping of names to overrides, such as "
            f"recipes={{cayley: [encoder=cayley_per_head], rope: [encoder=rope_mixed]}}, or "
            f"recipes=FILE.yaml with this mapping."
        )
    recipes = tuple(TrainingRecipe.parse(str(name), value) for name, value in plain.items())
    known: dict[tuple[tuple[str, ...], ...], str] = {}
    for recipe in recipes:
        other = known.setdefault((recipe.train, recipe.collect), recipe.name)
        if other != recipe.name:
            raise ValueError(
                f"The recipes {other!r} and {recipe.name!r} have the same overrides; to train a "
                f"recipe more often use trainings=N."
            )
    return recipes


@cache  # To compose a configuration takes a part of a second; recipes share overrides.
def check_command(command: str, overrides: tuple[str, ...], where: str) -> None:
    """Composes the configuration of a command, to find wrong overrides before anything runs.

    Raises:
        ValueError: An option or choice does not exist, has a value of another kind, or is set by
            the experiment itself.
    """
    if not overrides:
        return
    reserved = RESERVED[command]
    for override in overrides:
        if key_of(override) in reserved:
            raise ValueError(
                f"{where}: {override} has no place in a list of overrides, because "
                f"stringline-experiment sets {key_of(override)}."
            )
    folder = Path(stringline.__file__).parent / "configs"
    configuration = Configuration(folder.absolute(), CONFIGURATIONS[command], command)
    try:
        kept = configuration.without_null_choices(overrides)
        configuration.check_kinds(kept)
        configuration.check_effects(configuration.composed(kept), kept)
    except Exception as error:
        message = explain(error, configuration, overrides)
        if message is None:
            raise
        raise ValueError(f"{where}: {message}") from error


def with_recipes(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in the form that Hydra reads.

    Overrides inside of lists get quotes; `recipes=FILE.yaml` becomes `recipes_file`, `task=` and
    `suite=` become `tasks` and `suite_name`, because Hydra would look for a choice of a group.
    """
    return [arguments[0], *(_for_hydra(argument) for argument in arguments[1:])]


def _for_hydra(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if key == "recipes" and value.endswith((".yaml", ".yml")):
        return f"recipes_file={value}"
    if key == "task" and equals:
        return f"tasks={value}" if value.startswith("[") else f"tasks=[{value}]"
    if key == "suite" and equals:
        return f"suite_name={value}"
    if key not in LISTS_OF_OVERRIDES or not value:
        return argument
    try:
        plain = parse_yaml(value)
    except yaml.YAMLError:
        return argument  # Hydra reports it.
    return f"{key}={_quoted(plain)}"


def _quoted(plain: Any) -> str:
    """Returns a value as Hydra reads it, with all words in quotes."""
    if isinstance(plain, dict):
        return f"{{{','.join(f'{key}:{_quoted(value)}' for key, value in plain.items())}}}"
    if isinstance(plain, list):
        return f"[{','.join(map(_quoted, plain))}]"
    return hydra_value(plain)
