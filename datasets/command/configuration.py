"""A command's configuration as its user meets it: what can be chosen, and what `--help` says."""

import difflib
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

Result = TypeVar("Result")

WORDS_TOO = ("execution.delay_s", "leave")
"""Options with a number or a list as default that take words too, and say themselves which."""

FLAGS = """\
Flags:
  --help        this text
  --cfg job     print the configuration that a command line leads to, and stop
  --multirun    run once for every combination of key=value,value
  --debug       log more, and show where an error came from"""


@dataclass(frozen=True)
class Configuration:
    """The configuration files of one command.

    Attributes:
        folder: Where they are, absolute.
        name: The primary one, without `.yaml`.
        command: What the user typed to start it.
    """

    folder: Path
    name: str
    command: str

    def groups(self) -> dict[str, list[str]]:
        """Returns the names that each group offers, of the groups that this command chooses from."""

        def ask(loader: ConfigLoader) -> dict[str, list[str]]:
            chosen = compose(self.name, return_hydra_config=True).hydra.runtime.choices
            groups = (str(group).partition("@")[0] for group in chosen)
            return {
                group: loader.get_group_options(group)
                for group in sorted(groups)
                if not group.startswith("hydra/")
            }

        return self._with_hydra(ask)

    def composed(self, overrides: Sequence[str] = ()) -> DictConfig:
        """Composes the configuration; interpolations stay unresolved."""
        return self._with_hydra(lambda _: compose(self.name, overrides=list(overrides)))

    def options(self, overrides: Sequence[str] = ()) -> list[str]:
        """Returns the full names of all options, once the groups are chosen as the overrides say.

        Args:
            overrides: A command line; the values that it sets are left out, they may be mistaken.
        """
        return list(_keys(self.composed(self.choices(overrides))))

    def choices(self, overrides: Sequence[str]) -> list[str]:
        """Returns those of the overrides that choose from a group something that is there."""
        named = [override.partition("=")[::2] for override in overrides]
        if not any((self.folder / key).is_dir() for key, _ in named):
            # To ask Hydra takes as long as to compose all of it, and each group is a folder.
            return []
        groups = self.groups()
        return [f"{key}={value}" for key, value in named if value in groups.get(key, [])]

    def unknown_option(self, key: str, overrides: Sequence[str] = ()) -> str:
        """Returns what to answer to an option that does not exist.

        Args:
            key: The option as the user wrote it.
            overrides: The command line that it came with.
        """
        groups = self.groups()
        options = self.options(overrides)
        if key in options:
            return (
                f"The option {key!r} is there already; leave the + away: {key}=... All options: "
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
        beside = [
            name
            for name in known
            if "." in key and name.rpartition(".")[0] == key.rpartition(".")[0]
        ]
        beside = [
            name for name in beside if not _last(name).startswith("_")
        ]  # `_target_` and the like are no choice.
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        listed = f" Allowed there: {', '.join(beside)}." if beside else ""
        return f"There is no option {key!r}.{hint}{listed} All options: {self.command} --help"

    def _no_options_below(
        self, group: str, names: Sequence[str], options: Sequence[str], overrides: Sequence[str]
    ) -> str:
        """Returns what to answer to an option of a group whose files set options elsewhere."""
        asked = {_last(one.partition("=")[0]) for one in overrides if one.startswith(f"{group}.")}
        near = [name for name in options if _last(name) in asked][:3]
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        choices = f"It is a choice, {group}=NAME: {', '.join(names)}."
        return (
            f"There are no options below {group!r}.{hint} {choices} All options: {self.command} "
            f"--help"
        )

    def check_kinds(self, overrides: Sequence[str]) -> None:
        """Refuses words in the place of numbers, of lists, and of true or false, before anything is begun with them.

        Args:
            overrides: The command line. What cannot be read in it, and options that do not exist,
                are for Hydra to refuse.

        Raises:
            ValueError: It names the option, and its default value.
        """
        given = {key: value for key, value in _values(overrides).items() if key not in WORDS_TOO}
        usual = self.composed(self.choices(overrides)) if given else OmegaConf.create()
        for key, value in given.items():
            default = _value_at(usual, key)
            if allowed := _allowed(default, value):
                usually = f"It is {_as_typed(default)} if it is not given."
                raise ValueError(
                    f"The option {key!r} is {_as_typed(value)}; allowed: {allowed}. {usually}"
                )

    def help(self, overrides: Sequence[str] = ()) -> str:
        """Returns the text of `--help`: the comment that opens the primary file, the choices, the options and their values."""
        choices = "".join(
            f"\n  {group:<12}  {', '.join(names)}" for group, names in self.groups().items()
        )
        options = OmegaConf.to_yaml(self.composed(overrides)).rstrip().replace("\n", "\n  ")
        return "\n\n".join(
            (
                f"{self.command} [group=name ...] [key=value ...]",
                self.introduction(),
                f"Choices, group=name:{choices or ' none'}",
                (
                    f"Options, key=value (below another with a dot: key.key=value), and what they "
                    f"are "
                    f"now:\n  {options}"
                ),
                FLAGS,
            )
        )

    def introduction(self) -> str:
        """Returns the comment that opens the primary file."""
        lines = (self.folder / f"{self.name}.yaml").read_text(encoding="utf-8").splitlines()
        end = next(
            (number for number, line in enumerate(lines) if not line.startswith("#")), len(lines)
        )
        return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:end])

    def _with_hydra(self, ask: Callable[[ConfigLoader], Result]) -> Result:
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(self.folder), version_base="1.3"):
            return ask(GlobalHydra.instance().config_loader())


def _values(overrides: Sequence[str]) -> dict[str, object]:
    """Returns the values of a command line that are no numbers, by option, as Hydra reads them; not those of several runs."""
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
    """Returns an option's value, None where there is no such option."""
    with suppress(OmegaConfBaseException):
        return OmegaConf.select(settings, key, throw_on_resolution_failure=False)
    return None


def _as_typed(value: object) -> str:
    """Returns a value as it stands on a command line, words in quotation marks."""
    if isinstance(value, ListConfig):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _is_word(value: object) -> bool:
    return (
        isinstance(value, str) and "${" not in value
    )  # What refers to another option is of its kind.


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _allowed(default: object, value: object) -> str:
    """Returns what is allowed in the place of a value that is no number, given the option's default; empty: just that."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true and false"
    if isinstance(default, ListConfig):
        return f"lists, such as [{value}]"
    return "numbers" if isinstance(default, (int, float)) else ""


def _keys(settings: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yields the full names of the options in a configuration, those that have others below them included."""
    for key, value in settings.items_ex(resolve=False):
        name = f"{prefix}{key!s}"
        yield name
        if isinstance(value, DictConfig) and not (
            value._is_none() or value._is_missing() or value._is_interpolation()
        ):
            yield from _keys(value, f"{name}.")


def _last(key: str) -> str:
    return key.rpartition(".")[2]
