"""The comments of configuration files, which `--help` shows as descriptions."""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import yaml

Keys = tuple[str, ...]


def opening_comment(file: Path) -> str:
    """Returns the comment at the top of a YAML file, without Hydra's `@package` line."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(
        line.removeprefix("#").removeprefix(" ")
        for line in takewhile(lambda line: line.startswith("#"), lines)
        if not line.startswith("# @package")
    )


def option_comments(file: Path) -> dict[Keys, str]:
    """Returns the comment behind each option of a YAML file by the option's keys.

    A comment describes the option of its line. Comments in lines of their own are not included. An
    item of a list has its index as key.
    """
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return {
        keys: comment
        for keys, line, column in _options(root)
        if (comment := _comment(lines[line], column))
    }


def _options(
    node: yaml.Node | None, above: Keys = (), line_above: int = -1
) -> Iterator[tuple[Keys, int, int]]:
    """Yields keys, line, and the column where the value or the key ends in this line.

    Of the options in one line, such as those of {a: 1, b: 2}, the first one has the comment.
    """
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _options(item, (*above, str(number)), line_above)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        keys = (*above, str(key.value))
        line = key.start_mark.line
        on_line = value.end_mark.line == line
        if line != line_above:
            yield keys, line, (value if on_line else key).end_mark.column
        line_above = line
        yield from _options(value, keys, line)


def _comment(line: str, column: int) -> str:
    return line[column:].partition(" #")[2].strip()
