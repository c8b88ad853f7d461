"""The kinds of values of options: numbers, truth values, lists and words."""

import math
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException
from omegaconf import ListConfig

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
