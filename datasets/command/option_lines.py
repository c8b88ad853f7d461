"""A configuration as lines of YAML for `--help`, each with the option that it sets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from stringline.datasets.command.option_comments import Keys

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
