"""The `--help` text of a command: choices, and options as lines of YAML with their comments."""

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import OmegaConf

from stringline.datasets.command.choices import Keys, descriptions, read_choice
from stringline.datasets.command.class_choices import class_descriptions
from stringline.datasets.command.configuration import Configuration

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
