"""The entry point of every command: configuration through Hydra, help, and user errors in one line.

A command neither changes the working directory nor makes Hydra's `outputs/` folder. With
`--multirun` Hydra writes its configuration and the logs of cluster jobs to
`multirun/<date>/<time>`. `--help` shows choices, and options as lines of YAML with their comments.
"""

import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import hydra
import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

import stringline
from stringline.datasets.command.choices import Keys, class_descriptions, descriptions, read_choice
from stringline.datasets.command.configuration import Configuration, plain_options
from stringline.datasets.command.user_errors import explain
from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.extensions.trust import ENVIRONMENT, OPTION, consented

logger = logging.getLogger(__name__)

_WORDS = ("null", "true", "false", "on", "off", "yes", "no", "nan", "inf", "infinity")


def command_line(command: str, settings: Mapping[str, object]) -> str:
    """Returns a shell command with settings in their order."""
    given = [f"{key}={hydra_value(value)}" for key, value in settings.items()]
    return shlex.join([command, *given])


def report_next(command: str, settings: Mapping[str, object]) -> None:
    """Logs the command that usually follows; call it at the end of a run."""
    logger.info("Next: %s", command_line(command, settings))


def hydra_value(value: object) -> str:
    """Returns a value as Hydra's command line reads it, in quotes where necessary."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(hydra_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{hydra_value(each)}' for key, each in value.items())}}}"
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    if (
        re.fullmatch(r"(\.{0,2}/|[A-Za-z_])[\w./:-]*", value, re.ASCII)
        and value.lower() not in _WORDS
    ):
        return value
    # Hydra reads a backslash as an escape only before a quote, so one at the end is doubled.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - trailing :]}'"


_STEP = "  "
_FACTORY = "_partial_"  # Says how a class is called; the user cannot change it.
_CLASS = "_target_"


def option_lines(
    settings: Mapping[str, Any], *, above: Keys = (), indent: str = ""
) -> Iterator[tuple[Keys, str]]:
    """Yields the keys and the line of each option, at each level before the blocks of options.

    Lists are on one line, except lists of lists or of classes, which have a line for each item.

    Args:
        settings: Plain mappings, lists and values.
        above: Keys of the mapping.
        indent: Indentation of its options.
    """
    shown = {key: value for key, value in settings.items() if key != _FACTORY}
    for key, value in sorted(shown.items(), key=lambda item: _is_block(item[1])):
        keys = (*above, str(key))
        if not (_is_block(value) or _is_long(value)):
            yield keys, f"{indent}{key}: {_inline(value)}"
            continue
        yield keys, f"{indent}{key}:"
        if isinstance(value, Mapping):
            yield from option_lines(value, above=keys, indent=indent + _STEP)
        else:
            yield from _items(value, keys, indent)


def _items(items: Sequence[Any], above: Keys, indent: str) -> Iterator[tuple[Keys, str]]:
    """Yields the lines of a list; options of a class are below its first line."""
    for number, item in enumerate(items):
        keys = (*above, str(number))
        if not _is_class(item):
            yield keys, f"{indent}- {_inline(item)}"
            continue
        for place, (found, line) in enumerate(option_lines(item, above=keys)):
            yield found, f"{indent}{_STEP if place else '- '}{line}"


def _is_block(value: object) -> bool:
    return isinstance(value, Mapping) and any(key != _FACTORY for key in value)


def _is_class(value: object) -> bool:
    return isinstance(value, Mapping) and _CLASS in value


def _is_long(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, list | Mapping) for item in value)


def _inline(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").rstrip("\n")


FLAGS = """\
Flags:
  --help        this text
  --version     the version of Stringline
  --cfg job     print the composed configuration and exit
  --multirun    run once for every combination of key=value,value
  --debug       log more, and print the traceback of an error"""

CHOICES = """\
Choices, group=name. The chosen one is in brackets, with its description below; {command}
group=name --help describes another one."""

OPTIONS = "Options, key=value, with their values and meanings."
NOTATION = {
    ":\n": "Options of a block are written block.key=value.",
    ": ???": "`???` needs a value.",
    "${": "`${key}` is the value of another option.",
    "_target_": "`_target_` is the class of the options beside it (docs/api.md).",
}
"""Parts of the lines of options, and their explanations."""

_INDENT = "  "
_WIDEST_NAME = 14  # Columns; the list of a longer name of a group starts in the next line.
_WIDEST_OPTION = 44  # Columns; the comment of a longer one that does not fit is below it.
_SHARE_OF_OPTIONS = 0.4
_SHOWN = 160  # Characters of a description from which further sentences are left out.
_SENTENCE_END = re.compile(r"(?<=[.!]) (?=[A-Z`'])")
_WIDTHS = (80, 140)
_WIDTH_OF_FILES = 120  # Columns, where the output is not a terminal.


def help_text(configuration: Configuration, overrides: Sequence[str] = ()) -> str:
    """Returns the opening comment of the primary file, the choices, and the options.

    Args:
        configuration: The files of the command.
        overrides: The `key=value` arguments of the command line; their choices are shown.
    """
    least, most = _WIDTHS
    width = min(max(shutil.get_terminal_size((_WIDTH_OF_FILES, 24)).columns, least), most)
    composed, chosen = configuration.composed_with_choices(overrides)
    files = configuration.files(overrides)
    chosen = _several(files, configuration.name) | chosen
    settings = cast("dict[str, Any]", OmegaConf.to_container(composed, resolve=False))
    options = list(option_lines(settings, indent=_INDENT))
    plain = "".join(f"{line}\n" for _, line in options)
    notation = [sentence for part, sentence in NOTATION.items() if part in plain]
    described = _described(options, _comments(configuration.folder, files), width)
    parts = [
        f"{configuration.command} {'[group=name ...] ' if chosen else ''}[key=value ...]",
        _wrapped_prose(configuration.introduction(), width),
    ]
    if chosen:
        parts.append(_filled(CHOICES.format(command=configuration.command), width))
        parts.append("\n".join(_choices(configuration, chosen, width)))
    parts.append(_filled(" ".join([OPTIONS, *notation]), width))
    return "\n\n".join([*parts, "\n".join(described), FLAGS])


def _several(files: Iterable[str], primary: str) -> dict[str, list[str]]:
    """Returns the names chosen from each group; Hydra's own list lacks choices of several names."""
    chosen = dict[str, list[str]]()
    for file in files:
        group, _, name = file.rpartition("/")
        if group and file != primary:
            chosen.setdefault(group, []).append(name)
    return chosen


def _comments(folder: Path, files: Mapping[str, Keys]) -> dict[Keys, str]:
    """Returns the descriptions of all options of a command line."""
    return {
        (*package, *keys): _first_sentences(text)
        for file, package in files.items()
        for keys, text in (descriptions(folder, file) or class_descriptions(file)).items()
    }


def _first_sentences(text: str) -> str:
    """Returns the first sentence of a description, and the following ones that are not too long."""
    shown = ""
    for sentence in _SENTENCE_END.split(text):
        if shown and len(shown) + len(sentence) > _SHOWN:
            break
        shown = f"{shown} {sentence}".lstrip()
    return shown


def _choices(
    configuration: Configuration, chosen: Mapping[str, Sequence[str]], width: int
) -> Iterator[str]:
    """Yields the lines of all groups: names, and the descriptions of the chosen ones."""
    start = _INDENT + " " * _WIDEST_NAME + _INDENT
    for group, names in configuration.groups(chosen).items():
        listed = ", ".join(f"[{name}]" if name in chosen[group] else name for name in names)
        lines = textwrap.wrap(listed, width - len(start), break_on_hyphens=False)
        if len(group) > _WIDEST_NAME:
            yield _INDENT + group
        else:
            yield f"{_INDENT}{group:<{_WIDEST_NAME}}{_INDENT}{lines.pop(0)}"
        yield from (start + line for line in lines)
        for name in chosen[group]:
            choice = read_choice(configuration.folder, f"{group}/{name}")
            text = "" if choice is None else choice.description
            yield from (
                start + _INDENT + line
                for line in textwrap.wrap(
                    _first_paragraph(text), width - len(start + _INDENT), break_on_hyphens=False
                )
            )


def _described(
    options: Iterable[tuple[Keys, str]], comments: Mapping[Keys, str], width: int
) -> Iterator[str]:
    """Yields the lines of the options with their comments; a blank line precedes each block."""
    column = min(_WIDEST_OPTION, int(_SHARE_OF_OPTIONS * width))
    for number, (keys, option) in enumerate(options):
        if number and len(keys) == 1 and option.endswith(":"):
            yield ""
        yield from _line(option, comments.get(keys, ""), column, width)


def _line(option: str, comment: str, column: int, width: int) -> list[str]:
    """Returns the lines of an option; a long comment continues below its first word."""
    if not comment:
        return [option]
    if len(option) > column and len(f"{option}  # {comment}") <= width:
        return [f"{option}  # {comment}"]
    start = f"{'':<{column}}  # "
    wrapped = textwrap.wrap(comment, width - len(start), break_on_hyphens=False)
    first = [option] if len(option) > column else [f"{option:<{column}}  # {wrapped.pop(0)}"]
    return [*first, *(start + part for part in wrapped)]


def _first_paragraph(text: str) -> str:
    """Returns the first paragraph of an opening comment as one line, without its examples."""
    return " ".join(text.partition("\n\n")[0].partition("\n ")[0].split())


def _wrapped_prose(text: str, width: int) -> str:
    """Wraps the paragraphs of an opening comment that are too wide; examples stay as they are."""
    return "\n\n".join(
        paragraph
        if paragraph.startswith(" ") or max(map(len, paragraph.split("\n"))) <= width
        else _filled(paragraph, width)
        for paragraph in text.split("\n\n")
    )


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)


Task = Callable[[DictConfig], object]
Complete = Callable[[Sequence[str]], Sequence[str]]
Result = TypeVar("Result")

USER_ERROR = 2
PROGRAM_ERROR = 1
INTERRUPTED = 130
STOPPED = "Stopped. Run the same command to continue."

FULL_ERROR = "HYDRA_FULL_ERROR"
QUIET_HYDRA = (
    "hydra.run.dir=.",
    "hydra.sweep.subdir=.",
    "hydra.output_subdir=null",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
)

_log = logging.getLogger("stringline")


def run(
    config_name: str,
    task: Task,
    *,
    folder: Path | None = None,
    stopped: str = STOPPED,
    complete: Complete = list,
) -> None:
    """Runs a command: composes the configuration of the command line and passes it to `task`.

    Further flags are `--help`, see `help_text`, and `--debug` (or HYDRA_FULL_ERROR=1), which prints
    the traceback of an error. The process exits with 2 after a user error, 1 after an error of the
    program, 130 after Ctrl-C.

    Args:
        config_name: The primary configuration, without `.yaml`.
        task: The work of the command.
        folder: Folder of the configuration files; `stringline/configs` by default.
        stopped: Message after Ctrl-C.
        complete: Adds to the arguments what other files decide, such as those of a checkpoint; its
            errors are those of the command.
    """
    command = _command(config_name, folder, stopped)
    completed = command.guarded(lambda: complete(command.arguments))
    command = replace(command, arguments=completed)
    if {"--help", "-h"} & set(command.arguments):
        command.guarded(command.show_help)
    else:
        command.guarded(lambda: command.through_hydra(task))


def show_help(config_name: str) -> None:
    """Prints the `--help` text of the command with a primary configuration."""
    command = _command(config_name, None, STOPPED)
    command.guarded(command.show_help)


def _command(config_name: str, folder: Path | None, stopped: str) -> "_Command":
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = "--debug" in sys.argv or os.environ.get(FULL_ERROR) == "1"
    where = folder or Path(stringline.__file__).parent / "configs"
    configuration = Configuration(where.absolute(), config_name, Path(sys.argv[0]).name)
    command = _Command(configuration, arguments, debug, stopped)
    start_logging(command.log_level)
    return command


class _Lines(logging.Formatter):
    """Formats messages so that names from data in them cannot forge lines or move the cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns a message whose further lines are indented."""
        record.message = "\n  ".join(map(printable, record.message.split("\n")))
        return super().formatMessage(record)


def start_logging(level: int) -> None:
    """Sends the log to standard error, a line per message; other libraries from WARNING on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("stringline", "__main__"):  # Under `python -m` a command is `__main__`.
        logging.getLogger(name).setLevel(level)


@dataclass(frozen=True)
class _Command:
    """A command line and its execution."""

    configuration: Configuration
    arguments: Sequence[str]
    debug: bool
    stopped: str

    @property
    def overrides(self) -> list[str]:
        """The `key=value` arguments."""
        return [
            argument
            for argument in self.arguments
            if not argument.startswith("-") and "=" in argument
        ]

    @property
    def log_level(self) -> int:
        """The level of this package's log."""
        return logging.DEBUG if self.debug else logging.INFO

    def show_help(self) -> None:
        """Prints the help text for the choices of the command line."""
        # A file of the user in place of a choice, such as suite=mine.yaml, has no description.
        known = [one for one in self.overrides if not one.endswith((".yaml", ".yml"))]
        choices = self.configuration.without_null_choices(known)
        sys.stdout.write(help_text(self.configuration, choices) + "\n")

    def through_hydra(self, task: Task) -> None:
        """Composes the configuration by Hydra and calls the task."""
        # Hydra's parser expects flags such as --multirun behind all values.
        values = [
            argument
            for argument in self.arguments
            if argument.startswith("~") or argument in self.overrides
        ]
        flags = [argument for argument in self.arguments if argument not in values]
        configuration = self.configuration
        configuration.check_flags(flags)
        values = configuration.without_null_choices(values)
        chosen, plain = plain_options(configuration.folder, configuration.name, values)
        requested = os.environ.get(FULL_ERROR)
        configuration.check_single_choices(values)
        configuration.check_kinds(values)
        chosen = configuration.with_new_entries(chosen)
        sys.argv = [sys.argv[0], *QUIET_HYDRA, *chosen, *flags]

        def guarded_task(settings: DictConfig) -> None:
            # A job of a cluster runs in a new process, without a log so far.
            if logging.getLogger("stringline").level == logging.NOTSET:
                start_logging(self.log_level)
            for key, value in plain.items():
                OmegaConf.update(settings, key, value)
            self.guarded(lambda: configuration.check_optional_choices(values))
            self.guarded(lambda: configuration.check_effects(settings, values))
            with _environment(FULL_ERROR, requested):
                self.guarded(lambda: _with_consent(settings, task))

        # Otherwise Hydra prints configuration errors itself and exits.
        with _environment(FULL_ERROR, "1"):
            hydra.main(
                version_base="1.3",
                config_path=str(configuration.folder),
                config_name=configuration.name,
            )(guarded_task)()

    def guarded(self, work: Callable[[], Result]) -> Result:
        """Returns the result of `work`, or exits with a message if it fails."""
        try:
            return work()
        except KeyboardInterrupt:
            sys.stderr.write(f"\n{self.stopped}\n")
            raise SystemExit(INTERRUPTED) from None
        except Exception as error:
            message = explain(error, self.configuration, self.overrides)
            if message is None or self.debug:
                _log.exception("The trace of the error:")
            if message is not None:
                lines = "\n".join(map(printable, message.split("\n")))
                sys.stderr.write(f"{self.configuration.command}: {lines}\n")
            raise SystemExit(PROGRAM_ERROR if message is None else USER_ERROR) from None


def _with_consent(settings: DictConfig, task: Task) -> None:
    """Calls the task; it and its processes may run the code of packages that the user named."""
    plain: Any = OmegaConf.to_container(settings)
    with open_dict(settings):
        settings.pop(OPTION, None)
    with _environment(ENVIRONMENT, consented(plain) or None):
        task(settings)


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Sets or removes an environment variable within a block."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
