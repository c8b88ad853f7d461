"""The configuration of a command: its choices and options, their checks, and the `--help` text."""

import difflib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from stringline.datasets.contract.argument_checks import unknown_name

Result = TypeVar("Result")

WORDS_TOO = ("execution.delay_s", "leave")
"""Options with a number or a list as default that also take words; their commands check them."""

OPTIONAL = ("logger",)
"""Groups that have a default choice, and that `GROUP=null` leaves out."""

OPTIONAL_CHOICES = ("recipe",)
"""Groups whose default choice is optional, `optional GROUP: ...`."""

FLAGS = """\
Flags:
  --help        this text
  --cfg job     print the composed configuration and exit
  --multirun    run once for every combination of key=value,value
  --debug       log more, and print the traceback of an error"""


@dataclass(frozen=True)
class Configuration:
    """The files of one command: their absolute folder, the primary file, and the command's name."""

    folder: Path
    name: str
    command: str

    def groups(self) -> dict[str, list[str]]:
        """Returns the choices of each configuration group of this command."""

        def read(loader: ConfigLoader) -> dict[str, list[str]]:
            chosen = compose(self.name, return_hydra_config=True).hydra.runtime.choices
            groups = (str(group).partition("@")[0] for group in chosen)
            return {
                group: loader.get_group_options(group)
                for group in sorted(groups)
                if not group.startswith("hydra/")
            }

        return self._with_hydra(read)

    def composed(self, overrides: Sequence[str] = ()) -> DictConfig:
        """Composes the configuration; interpolations stay unresolved."""
        return self._with_hydra(lambda _: compose(self.name, overrides=list(overrides)))

    def options(self, overrides: Sequence[str] = ()) -> list[str]:
        """Returns the full names of all options under the choices of a command line."""
        return list(_keys(self.composed(self.choices(overrides))))

    def choices(self, overrides: Sequence[str]) -> list[str]:
        """Returns the overrides that make a valid choice from a group."""
        named = [override.partition("=")[::2] for override in overrides]
        # Each group is a folder; listing the groups by Hydra takes as long as composing all of it.
        if not any((self.folder / key).is_dir() for key, _ in named):
            return []
        groups = self.groups()
        return [f"{key}={value}" for key, value in named if value in groups.get(key, [])]

    def unknown_option(self, key: str, overrides: Sequence[str] = ()) -> str:
        """Returns the message for an option that does not exist, given the command line with it."""
        groups = self.groups()
        options = self.options(overrides)
        if key in options:
            return (
                f"The option {key!r} exists already; omit the +: {key}=... All options: "
                f"{self.command} --help"
            )
        if key in groups:
            return self._no_options_below(key, groups[key], options, overrides)
        known = [*groups, *options]
        alike = difflib.get_close_matches(
            _last(key), {_last(name) for name in known}, n=2, cutoff=0.75
        )
        moved = [name for word in alike for name in known if _last(name) == word]
        near = list(
            dict.fromkeys([*difflib.get_close_matches(key, known, n=2, cutoff=0.6), *moved])
        )[:3]
        # `_target_` and the like are not options.
        beside = [
            name
            for name in known
            if "." in key
            and name.rpartition(".")[0] == key.rpartition(".")[0]
            and not _last(name).startswith("_")
        ]
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        listed = f" Allowed there: {', '.join(beside)}." if beside else ""
        return f"There is no option {key!r}.{hint}{listed} All options: {self.command} --help"

    def _no_options_below(
        self, group: str, names: Sequence[str], options: Sequence[str], overrides: Sequence[str]
    ) -> str:
        """Returns the message for an option of a group whose files set options elsewhere."""
        given = {_last(one.partition("=")[0]) for one in overrides if one.startswith(f"{group}.")}
        near = [name for name in options if _last(name) in given][:3]
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        choices = f"{group!r} is a choice, {group}=NAME: {', '.join(names)}."
        return (
            f"There are no options below {group!r}.{hint} {choices} All options: {self.command} "
            "--help"
        )

    def without_null_choices(self, overrides: Sequence[str]) -> list[str]:
        """Returns overrides that Hydra accepts in place of `GROUP=null`, which it does not.

        Raises:
            ValueError: The group needs a choice, or the option a value.
        """
        return [kept for override in overrides for kept in self._without_null(override)]

    def _without_null(self, override: str) -> list[str]:
        group, _, value = override.partition("=")
        if value not in ("null", "None") or not (self.folder / group).is_dir():
            return [override]
        choices = self._choices()
        # Hydra also takes an option for a group if another command has a group of this name.
        default = choices[group] if group in choices else _value_at(self.composed(), group)
        if default is None:
            return []
        if group not in choices:
            raise ValueError(f"The option {group!r} cannot be null.")
        if group in OPTIONAL:
            return [f"~{group}"]
        names = self.groups().get(group, [])
        raise ValueError(f"{group!r} needs a choice, {group}=NAME: {', '.join(names)}.")

    def _choices(self) -> dict[str, str | None]:
        """Returns the default choice of each group; None: no choice."""
        chosen = self._with_hydra(lambda _: compose(self.name, return_hydra_config=True))
        return dict(chosen.hydra.runtime.choices)

    def check_kinds(self, overrides: Sequence[str]) -> None:
        """Checks that no option with a number, list or truth value as default is a word.

        Syntax errors and unknown options of the command line are left to Hydra.
        """
        given = {key: value for key, value in _values(overrides).items() if key not in WORDS_TOO}
        usual = self.composed(self.choices(overrides)) if given else OmegaConf.create()
        for key, value in given.items():
            default = _value_at(usual, key)
            if allowed := _allowed(default, value):
                raise ValueError(
                    f"The option {key!r} is {_as_typed(value)}; allowed: {allowed}. The default "
                    f"is {_as_typed(default)}."
                )

    def check_optional_choices(self, overrides: Sequence[str]) -> None:
        """Checks the choices of groups that are optional, where Hydra leaves out unknown ones.

        To be called in a job of Hydra, whose search path may have further folders.

        Raises:
            ValueError: A choice does not exist; the message contains the nearest names.
        """
        loader = GlobalHydra.instance().config_loader()
        for group, _, name in (override.partition("=") for override in overrides):
            if group in OPTIONAL_CHOICES and name not in loader.get_group_options(group):
                raise unknown_name(group, name, loader.get_group_options(group))

    def help(self, overrides: Sequence[str] = ()) -> str:
        """Returns the `--help` text: opening comment of the primary file, choices, options."""
        choices = "".join(
            f"\n  {group:<12}  {', '.join(names)}" for group, names in self.groups().items()
        )
        options = OmegaConf.to_yaml(self.composed(overrides)).rstrip().replace("\n", "\n  ")
        parts = (
            f"{self.command} [group=name ...] [key=value ...]",
            self.introduction(),
            f"Choices, group=name:{choices or ' none'}",
            f"Options, key=value (nested: key.key=value), with their values:\n  {options}",
            FLAGS,
        )
        return "\n\n".join(parts)

    def introduction(self) -> str:
        """Returns the opening comment of the primary file, without Hydra's `@package` line."""
        lines = (self.folder / f"{self.name}.yaml").read_text(encoding="utf-8").splitlines()
        comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
        return "\n".join(
            line.removeprefix("#").removeprefix(" ")
            for line in comment
            if not line.startswith("# @package")
        )

    def _with_hydra(self, read: Callable[[ConfigLoader], Result]) -> Result:
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(self.folder), version_base="1.3"):
            return read(GlobalHydra.instance().config_loader())


def _values(overrides: Sequence[str]) -> dict[str, object]:
    """Returns the words, truth values and NaN of a command line by option, sweeps excluded."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException:
        return {}
    plain = [
        one
        for one in parsed
        if not (one.is_delete() or one.is_add() or one.is_force_add() or one.is_sweep_override())
    ]
    values = {one.key_or_group: one.value() for one in plain}
    return {
        key: value
        for key, value in values.items()
        if _is_word(value) or isinstance(value, bool) or _is_nan(value)
    }


def _value_at(settings: DictConfig, key: str) -> object:
    """Returns the value of an option; None for an unknown option."""
    with suppress(OmegaConfBaseException):
        return OmegaConf.select(settings, key, throw_on_resolution_failure=False)
    return None


def _as_typed(value: object) -> str:
    """Returns a value as on a command line, words in quotation marks."""
    if isinstance(value, ListConfig):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _is_word(value: object) -> bool:
    # An interpolation has the kind of the option that it refers to.
    return isinstance(value, str) and "${" not in value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _allowed(default: object, value: object) -> str:
    """Returns the kind of value that the default demands; empty if the value has this kind."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true and false"
    if isinstance(default, ListConfig):
        return f"lists, such as [{value}]"
    return "numbers" if isinstance(default, (int, float)) else ""


def _keys(settings: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yields the full names of all options in a configuration, parents included."""
    for key, value in settings.items_ex(resolve=False):
        name = f"{prefix}{key!s}"
        yield name
        if isinstance(value, DictConfig) and not (
            value._is_none() or value._is_missing() or value._is_interpolation()
        ):
            yield from _keys(value, f"{name}.")


def _last(key: str) -> str:
    return key.rpartition(".")[2]
