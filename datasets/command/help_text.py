"""The `--help` text of a command."""

import shutil
import textwrap
from collections.abc import Sequence

from omegaconf import OmegaConf

from stringline.datasets.command.configuration import Configuration
from stringline.datasets.command.option_comments import option_lines

FLAGS = """\
Flags:
  --help        this text
  --version     the version of Stringline
  --cfg job     print the composed configuration and exit
  --multirun    run once for every combination of key=value,value
  --debug       log more, and print the traceback of an error"""

_INDENT = "  "
_LONGEST_OPTION = 44  # Columns; the comment of a longer one starts in the next line.
_WIDTHS = (80, 140)
_WIDTH_OF_FILES = 120  # Columns, where the output is not a terminal.


def help_text(configuration: Configuration, overrides: Sequence[str] = ()) -> str:
    """Returns the opening comment of the primary file, the choices, and the options.

    Args:
        configuration: The files of the command.
        overrides: The `key=value` arguments of the command line; their choices are shown.
    """
    choices = "".join(
        f"\n{_INDENT}{group:<12}  {', '.join(names)}"
        for group, names in configuration.groups().items()
    )
    parts = (
        f"{configuration.command} [group=name ...] [key=value ...]",
        configuration.introduction(),
        f"Choices, group=name:{choices or ' none'}",
        "Options, key=value (nested: key.key=value), with their values:",
    )
    return "\n\n".join(parts) + f"\n{_options(configuration, overrides)}\n\n{FLAGS}"


def _options(configuration: Configuration, overrides: Sequence[str]) -> str:
    """Returns the options as YAML, each with its comment."""
    text = OmegaConf.to_yaml(configuration.composed(overrides)).rstrip()
    comments = configuration.comments(overrides)
    keys = option_lines(text)
    least, most = _WIDTHS
    width = min(max(shutil.get_terminal_size((_WIDTH_OF_FILES, 24)).columns, least), most)
    lines = [
        _line(line, comments.get(keys.get(number, ()), ""), width)
        for number, line in enumerate(text.splitlines())
    ]
    return "\n".join(lines)


def _line(option: str, comment: str, width: int) -> str:
    """Returns the line of an option; a long comment continues below its first word."""
    option = _INDENT + option
    if not comment:
        return option
    start = " " * _LONGEST_OPTION + "  # "
    first = f"{option:<{_LONGEST_OPTION}}  # "
    wrapped = textwrap.wrap(comment, max(width - len(start), 30)) or [""]
    if len(option) > _LONGEST_OPTION:
        return "\n".join([option, *(start + part for part in wrapped)])
    return "\n".join([first + wrapped[0], *(start + part for part in wrapped[1:])])
