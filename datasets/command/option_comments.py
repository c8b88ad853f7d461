"""The comments of configuration files, which `--help` shows as the descriptions of options."""

from collections.abc import Iterator
from pathlib import Path

import yaml

Keys = tuple[str, ...]


def option_comments(file: Path) -> dict[Keys, str]:
    """Returns the comment behind each option of a YAML file by the option's keys.

    A comment describes the option of its line. Comments in lines of their own are not included.
    """
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return {
        keys: comment
        for keys, line, column in _options(root)
        if (comment := _comment(lines[line], column))
    }


def option_lines(text: str) -> dict[int, Keys]:
    """Returns the keys of the option in each line of a YAML text, by the index of the line."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return {line: keys for keys, line, _ in _options(root)}


def _options(node: yaml.Node | None, above: Keys = ()) -> Iterator[tuple[Keys, int, int]]:
    """Yields keys, line, and the column where the value or the key ends in this line."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        keys = (*above, str(key.value))
        line = key.start_mark.line
        on_line = value.end_mark.line == line
        yield keys, line, (value if on_line else key).end_mark.column
        yield from _options(value, keys)


def _comment(line: str, column: int) -> str:
    return line[column:].partition(" #")[2].strip() if " #" in line[column:] else ""
