"""Numbers in messages, by name, and vectors of numbers from several topics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.checks import numbers
from stringline.datasets.formats.extra_series import NOT_CHOSEN
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.mcap_recording import Plain

Selection = Mapping[str, Sequence[str] | None]
"""The names of the chosen numbers by topic; None chooses all."""

_OF_JOINTS = ("velocity", "acceleration", "effort")
_BOOKKEEPING = ("header", "timestamp", "layout")


def numbers_of(key: str, kind: str, content: Plain) -> dict[str, float]:
    """Returns the numbers of a message by name.

    Those of `JointState` and `foxglove.JointStates` are the positions by the names of the joints,
    others the fields, such as `pose.position.x`, `data` or `data.0`. Errors contain `key`.
    """
    if kind == "JointState":
        names = content["name"]
        positions = content["position"]
        if len(names) != len(positions):
            raise ForeignDataError(f"{key} has {len(names)} names and {len(positions)} positions.")
        return dict(zip(names, map(float, positions), strict=True))
    if kind == "JointStates":
        return {joint["name"]: _position(key, joint) for joint in content["joints"]}
    fields = {key: value for key, value in content.items() if key not in _BOOKKEEPING}
    return dict(_leaves("", fields))


def left_fields(key: str, kind: str, contents: Sequence[Plain]) -> dict[str, str]:
    """Returns the fields of joints that have values beside the positions, with the reason.

    Their names begin with `key`.
    """
    fields: Iterable[Plain] = ()
    if kind == "JointState":  # Fields without values are empty.
        fields = ({field: each.get(field) or None for field in _OF_JOINTS} for each in contents)
    elif kind == "JointStates":
        fields = (joint for each in contents for joint in each["joints"])
    found = {field for each in fields for field in _OF_JOINTS if each.get(field) is not None}
    return {f"{key} {field}": "of joints, only positions are imported" for field in sorted(found)}


def _position(key: str, joint: Plain) -> float:
    if joint.get("position") is None:
        raise ForeignDataError(f"{key} has no position of {joint['name']!r}.")
    return float(joint["position"])


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yields the numbers below a field with their names."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else key, part)
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _leaves(f"{prefix}.{place}", part)
    elif isinstance(value, (int, float)):
        yield prefix, float(value)


@dataclass(frozen=True)
class Vector:
    """The vectors (T, D) of an episode and the names of their D numbers."""

    names: tuple[str, ...]
    values: Array


def vector(
    selection: Selection,
    series: Mapping[str, Sequence[Mapping[str, float]]],
    chosen: Mapping[str, Array],
) -> Vector:
    """Returns the vectors of several topics.

    A name that occurs in several topics is preceded by its topic.

    Args:
        selection: The chosen numbers.
        series: The numbers of each message by topic.
        chosen: The number of the message at each step (T,) by topic.
    """
    parts = {}
    for topic, wanted in selection.items():
        names = list(wanted or series[topic][0])
        rows = [
            [_number(topic, m, row, name) for name in names] for m, row in enumerate(series[topic])
        ]
        if not names:
            raise ForeignDataError(f"{topic} has no numbers.")
        parts[topic] = names, numbers(topic, rows, len(names), names)[chosen[topic]]
    every = [name for names, _ in parts.values() for name in names]
    return Vector(
        tuple(
            name if every.count(name) == 1 else f"{topic}/{name}"
            for topic, (names, _) in parts.items()
            for name in names
        ),
        np.concatenate([values for _, values in parts.values()], axis=1) if parts else np.empty(0),
    )


def left_numbers(
    selections: Sequence[Selection], series: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, str]:
    """Returns the numbers of the chosen topics that no selection names, with the reason."""
    left_out: dict[str, str] = {}
    for topic, rows in series.items():
        chosen = [selection[topic] for selection in selections if topic in selection]
        named = {name for names in chosen for name in names or rows[0]}
        left_out |= {f"{topic} {name}": NOT_CHOSEN for name in rows[0] if name not in named}
    return left_out


def _number(topic: str, message: int, row: Mapping[str, float], name: str) -> float:
    if name not in row:
        why = unknown_name("number", name, row)
        raise ForeignDataError(f"{topic} at message {message}: {why}")
    return row[name]
