"""The configuration of a command: its files, choices and options, their comments and their checks.

The comments of configuration files are the descriptions in `--help`. An option has the kind of its
default: number, truth value, list or word. Hydra takes `task=NAME` for a choice wherever the folder
`configs/task` exists, so options with the name of a group that another command has are set after
the composition (`plain_options`). The recipe of a command is its choices and options as plain data,
to store beside its results.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from stringline.datasets.command.choices import (
    Keys,
    choice_names,
    class_names,
    completed,
    opening_comment,
)
from stringline.datasets.contract.argument_checks import unknown_name

WORDS_TOO = ("exclude", "execution.delay_s", "held_out", "leave", "trust")
"""Options with a number or a list as default that also take words; their commands check them."""


def words_of(overrides: Sequence[str]) -> dict[str, object]:
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
        if key not in WORDS_TOO and (_is_word(value) or isinstance(value, bool) or _is_nan(value))
    }


def check_kind(key: str, value: object, default: object) -> None:
    """Checks that the value of an option has the kind of its default.

    Raises:
        ValueError: It has another kind.
    """
    if allowed := _allowed(default, value):
        raise ValueError(
            f"The option {key!r} is {_as_typed(value)}; allowed: {allowed}. The default is "
            f"{_as_typed(default)}."
        )


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


Result = TypeVar("Result")
_REFERENCE = re.compile(r"\$\{([a-z_][\w.]*)\}")

OPTIONAL = ("logger",)
"""Groups that have a default choice, and that `GROUP=null` leaves out."""

SEVERAL = ("shift",)
"""Groups of which a list chooses several files, whose options are merged."""

BY_REFERENCE = ("encoder", "coordinates", "depth")
"""Groups that other options read, `${encoder.values}`; alone they have no effect."""

OPTIONAL_CHOICES = ("recipe",)
"""Groups whose default choice is optional, `optional GROUP: ...`."""

FLAG = re.compile(
    "-(h|c|p|r|m|i|sc|cp|cn|cd)|--(help|hydra-help|version|cfg|resolve|package|run|multirun|info|"
    "shell-completion|config-path|config-name|config-dir|experimental-rerun)"
)
"""A flag of Hydra's command line; `--debug` is taken before."""


@dataclass(frozen=True)
class Configuration:
    """The files of one command: their absolute folder, the primary file, and the command's name."""

    folder: Path
    name: str
    command: str

    def groups(self, chosen: Iterable[str] | None = None) -> dict[str, list[str]]:
        """Returns the choices of each configuration group of this command.

        Args:
            chosen: The groups, if they are known; composing the configuration again takes long.
        """
        # Each group is a folder; listing it by Hydra takes as long as composing the configuration.
        return {
            group: sorted({*choice_names(self.folder, group), *class_names(group)})
            for group in sorted(self._choices() if chosen is None else chosen)
        }

    def composed(self, overrides: Sequence[str] = ()) -> DictConfig:
        """Composes the configuration; interpolations stay unresolved."""
        return self._with_hydra(lambda _: compose(self.name, overrides=list(overrides)))

    def composed_with_choices(
        self, overrides: Sequence[str] = ()
    ) -> tuple[DictConfig, dict[str, list[str]]]:
        """Composes the configuration once, also for the chosen names of each group."""
        settings = self._with_hydra(
            lambda _: compose(self.name, overrides=list(overrides), return_hydra_config=True)
        )
        chosen = {
            str(group).partition("@")[0]: _names(name)
            for group, name in settings.hydra.runtime.choices.items()
            if not str(group).startswith("hydra/")
        }
        with open_dict(settings):
            del settings["hydra"]
        return settings, chosen

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

    def check_flags(self, flags: Sequence[str]) -> None:
        """Checks that words with dashes are flags of Hydra.

        Raises:
            ValueError: An option is written with dashes, as in other programs.
        """
        for flag in flags:
            name, _, value = flag.partition("=")
            if not name.startswith("-") or FLAG.fullmatch(name):
                continue
            key = name.lstrip("-").replace("-", "_")
            known = list(dict.fromkeys((*self.groups(), *self.options())))
            meant = [each for each in known if each.replace(".", "_") == key.replace(".", "_")]
            meant = meant or [each for each in known if _last(each) == key]
            if not meant:
                alike = difflib.get_close_matches(key, {_last(each) for each in known}, n=1)
                meant = [each for each in known if _last(each) in alike]
            written = " or ".join(repr(f"{each}={value or 'VALUE'}") for each in meant[:3])
            hint = f" Did you mean {written}?" if meant else ""
            raise ValueError(
                f"There is no flag {flag!r}; options are written without dashes, key=value.{hint} "
                f"All options: {self.command} --help"
            )

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
        default = choices[group] or None if group in choices else _value_at(self.composed(), group)
        if default is None:
            return []
        if group not in choices:
            raise ValueError(f"The option {group!r} cannot be null.")
        if group in OPTIONAL:
            return [f"~{group}"]
        names = self.groups().get(group, [])
        raise ValueError(f"{group!r} needs a choice, {group}=NAME: {', '.join(names)}.")

    def _choices(self) -> dict[str, list[str]]:
        """Returns the names chosen by default in each group; empty: no choice."""
        return self.composed_with_choices()[1]

    def check_kinds(self, overrides: Sequence[str]) -> None:
        """Checks that no option with a number, list or truth value as default is a word.

        Syntax errors and unknown options of the command line are left to Hydra.
        """
        given = words_of(overrides)
        usual = self.composed(self.choices(overrides)) if given else OmegaConf.create()
        for key, value in given.items():
            check_kind(key, value, _value_at(usual, key))

    def with_new_entries(self, overrides: Sequence[str]) -> list[str]:
        """Returns overrides in which entries of an option that is an empty mapping have Hydra's ++.

        Hydra otherwise refuses `task.options.table_height=0.02` and
        `task.options={table_height: 0.02}`, as the composed mapping has no such entry.
        """
        keys = [override.partition("=")[0] for override in overrides]
        if not any("." in override or "{" in override for override in overrides):
            return list(overrides)
        usual = self.composed()
        new = [
            {} in (_value_at(usual, key), _value_at(usual, key.rpartition(".")[0])) for key in keys
        ]
        return [
            f"++{override}" if is_new else override
            for override, is_new in zip(overrides, new, strict=True)
        ]

    def check_single_choices(self, overrides: Sequence[str]) -> None:
        """Checks that a list chooses from no group but `SEVERAL`; Hydra would take the last entry.

        Raises:
            ValueError: There is such a list.
        """
        for key, _, value in (override.partition("=") for override in overrides):
            single = key not in SEVERAL and (self.folder / key).is_dir()
            if single and value.startswith("[") and key in self.groups():
                raise ValueError(
                    f"{key}={value} is a list; allowed: one choice of {key} for {self.command}."
                )

    def files(self, overrides: Sequence[str] = ()) -> dict[str, Keys]:
        """Returns the files of a command line in their order, such as `policy/act`.

        The values are the keys above the options of each file.
        """

        def read(loader: ConfigLoader) -> dict[str, Keys]:
            files = loader.compute_defaults_list(self.name, list(overrides), RunMode.RUN).defaults
            return {
                each.config_path: _package(each.package)
                for each in files
                if each.config_path is not None and not each.config_path.startswith("hydra/")
            }

        return self._with_hydra(read)

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

    def check_effects(self, settings: DictConfig, overrides: Sequence[str]) -> None:
        """Checks that the composed settings read each option of a group of `BY_REFERENCE`.

        Without this, a comparison of encoders with a network that reads none compares it with
        itself.

        Raises:
            ValueError: No option reads one of the overrides.
        """
        keys = [override.lstrip("+~").partition("=")[0] for override in overrides]
        chosen = {key: key.partition(".")[0] for key in keys}
        networks = ("policy", "head")
        if not any(isinstance(settings.get(name), DictConfig) for name in networks):
            return  # In other commands options of these names are no groups.
        groups = [group for group in BY_REFERENCE if isinstance(settings.get(group), DictConfig)]
        plain = OmegaConf.to_container(settings, resolve=False)
        read = _references(plain, groups)
        for key, group in chosen.items():
            if group in groups and not any(_overlap(key, other) for other in read):
                raise ValueError(
                    f"{key} has no effect: no other option of this command line reads {group!r}. "
                    f"Leave it out, or choose {self._reader_of(group, plain)}."
                )

    def _reader_of(self, group: str, plain: object) -> str:
        """Returns a choice `GROUP=NAME` whose file reads a group."""
        readers = [
            f"{where}={name}"
            for where in ("policy/observation_encoder", "head/image_encoder")
            for name in choice_names(self.folder, where)
            if f"${{{group}." in str(completed(self.folder, f"{where}/{name}"))
            and isinstance(plain, dict)
            and where.partition("/")[0] in plain
        ]
        return " or ".join(readers) or "a network that does"

    def introduction(self) -> str:
        """Returns the opening comment of the primary file, without Hydra's `@package` line."""
        return opening_comment(self.folder / f"{self.name}.yaml")

    def _with_hydra(self, read: Callable[[ConfigLoader], Result]) -> Result:
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(self.folder), version_base="1.3"):
            return read(GlobalHydra.instance().config_loader())


def _names(choice: object) -> list[str]:
    """Returns the names of a choice from a group: none, one, or several."""
    if choice is None:
        return []
    return [str(name) for name in choice] if isinstance(choice, ListConfig) else [str(choice)]


def _package(name: str | None) -> Keys:
    """Returns the keys above the options of a file, given Hydra's name of its package."""
    return () if name in (None, "", "_global_") else tuple(str(name).split("."))


def _value_at(settings: DictConfig, key: str) -> object:
    """Returns the value of an option; None for an unknown option."""
    with suppress(OmegaConfBaseException):
        return OmegaConf.select(settings, key, throw_on_resolution_failure=False)
    return None


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


def _references(plain: object, groups: Sequence[str]) -> set[str]:
    """Returns the options of groups that options outside of them read, also through one another."""
    assert isinstance(plain, dict)
    waiting = [value for key, value in plain.items() if key not in groups]
    found = set[str]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str):
            for name in _REFERENCE.findall(value):
                if name.partition(".")[0] in groups and name not in found:
                    found.add(name)
                    waiting.append(_below(plain, name))
    return found


def _below(plain: object, name: str) -> object:
    """Returns the value of an option in nested settings, None if there is none."""
    for part in name.split("."):
        plain = plain.get(part) if isinstance(plain, dict) else None
    return plain


def _overlap(key: str, other: str) -> bool:
    """Returns whether two options are the same, or one contains the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def plain_options(
    folder: Path, name: str, overrides: Sequence[str]
) -> tuple[list[str], dict[str, object]]:
    """Divides overrides into those for Hydra, and values of options that Hydra takes for choices.

    Args:
        folder: Folder of the configuration files.
        name: The primary configuration, without `.yaml`.
        overrides: The `key=value` arguments.

    Raises:
        ValueError: The value of such an option is a list of values for a sweep.
    """
    options: dict[str, object] = {}
    rest = []
    own: set[str] | None = None
    for override in overrides:
        key = override.partition("=")[0]
        if (folder / key).is_dir():
            own = _own_options(completed(folder, name)) if own is None else own
        if own is not None and key in own and (folder / key).is_dir():
            options[key] = _value(override)
        else:
            rest.append(override)
    return rest, options


def _own_options(plain: Mapping[str, Any]) -> set[str]:
    """Returns the options of a primary configuration that are not choices of a group."""
    entries = [entry for entry in plain.get("defaults", []) if isinstance(entry, Mapping)]
    groups = {str(key).split()[-1].lstrip("/").partition("@")[0] for e in entries for key in e}
    return {
        key
        for key, value in plain.items()
        if key != "defaults" and key not in groups and not isinstance(value, Mapping)
    }


def _value(override: str) -> object:
    parsed = OverridesParser.create().parse_override(override)
    if parsed.is_sweep_override():
        raise ValueError(
            f"{override} is several values; allowed: one. Quote a value that contains a comma: "
            f"\"{parsed.key_or_group}='a, b'\"."
        )
    return parsed.value()


PLACES = ("output", "dataset.path")
"""Options that name a place on a disk, on which no result depends."""


def command_recipe() -> dict[str, Any]:
    """Returns `choices`, the choice of each group, and `options`, as given on the command line.

    It is called within the task of a command, see `run`.
    """
    hydra = HydraConfig.get()
    choices = {
        str(group): name
        for group, name in hydra.runtime.choices.items()
        if name is not None and not str(group).startswith("hydra/")
    }
    given = [option for option in hydra.overrides.task if option.partition("=")[0] not in PLACES]
    return {"choices": choices, "options": [str(option) for option in given]}
