"""Vectors of numbers from the messages of several topics, chosen by name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.checks import numbers
from stringline.datasets.formats.foreign import NOT_CHOSEN, ForeignDataError
from stringline.datasets.formats.message_times import Resampling, Times, Track
from stringline.datasets.formats.recording import Message, Plain

Selection = Mapping[str, Sequence[str] | None]
"""The names of the chosen numbers by topic; None chooses all."""
Rows = Sequence[Mapping[str, float]]
"""The numbers of each message of a topic by name."""

_JOINT_KINDS = ("JointState", "JointStates")
_OF_JOINTS = ("velocity", "acceleration", "effort")
_BOOKKEEPING = ("header", "timestamp", "layout")
UNFINISHED = "not finite; the episode starts at the first complete step"


def numbers_of(key: str, kind: str, content: Plain) -> dict[str, float]:
    """Returns the numbers of a message by name.

    Those of `JointState` and `foxglove.JointStates` are the positions by the names of the joints,
    others the fields, such as `pose.position.x`, `data` or `data.0`. Errors contain `key`.
    """
    if kind == "JointState":
        names = content["name"]
        positions = content["position"]
        if not len(positions):  # The publisher has other values of the joints.
            return {}
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


def names_of(kind: str, rows: Rows) -> list[str]:
    """Returns the names of the numbers of a topic; joints may come in several messages."""
    seen = rows if kind in _JOINT_KINDS else rows[:1]
    return list(dict.fromkeys(name for row in seen for name in row))


@dataclass(frozen=True)
class Stream:
    """Numbers that come together in messages of a topic, such as the joints of one publisher.

    Attributes:
        topic: The topic.
        names: Names of the D numbers.
        values: The numbers (N, D) of each message.
        track: Times of the messages.
        unfinished: Messages before these that were left out, because a number was not finite.
    """

    topic: str
    names: tuple[str, ...]
    values: Array
    track: Track
    unfinished: int


def streams(
    topic: str,
    kind: str,
    wanted: Sequence[str] | None,
    messages: Sequence[Message],
    rows: Rows,
    resampling: Resampling,
) -> list[Stream]:
    """Returns the chosen numbers of a topic.

    Joints are merged by name: those that come in the same messages form a stream.

    Args:
        topic: The topic.
        kind: Kind of its messages.
        wanted: Names of the numbers; None for all.
        messages: The messages.
        rows: Their numbers.
        resampling: The clock.

    Raises:
        ForeignDataError: There are no numbers, a name is unknown, a message lacks a number, or a
            number is not finite after the first complete message.
    """
    offered = names_of(kind, rows)
    names = list(wanted or offered)
    if not names:
        raise ForeignDataError(f"{topic} has no numbers.")
    together: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        places = tuple(number for number, row in enumerate(rows) if name in row)
        if not places or (kind not in _JOINT_KINDS and len(places) < len(rows)):
            number = next(number for number, row in enumerate(rows) if name not in row)
            why = unknown_name("number", name, rows[number] if places else offered)
            raise ForeignDataError(f"{topic} at message {number}: {why}")
        together.setdefault(places, []).append(name)
    found = []
    for places, group in together.items():
        label = topic if len(together) == 1 else f"{topic} ({', '.join(group)})"
        values = np.array([[rows[place][name] for name in group] for place in places], np.float64)
        start = _first_complete(label, values)
        values[:start] = 0
        values = numbers(label, values, len(group), group)[start:]
        track = resampling.track(topic, [messages[place] for place in places[start:]], label)
        found.append(Stream(topic, tuple(group), values, track, start))
    return found


def _first_complete(name: str, values: Array) -> int:
    """Returns the place of the first row of values (N, D) that is finite: a command, at last."""
    complete = np.isfinite(values).all(axis=1)
    if not complete.any():
        raise ForeignDataError(f"{name} has no message whose numbers are all finite.")
    return int(np.argmax(complete))


@dataclass(frozen=True)
class Vector:
    """The vectors (T, D) of an episode and the names of their D numbers."""

    names: tuple[str, ...]
    values: Array


def vector(
    selection: Selection, found: Sequence[Stream], steps: Times, resampling: Resampling
) -> Vector:
    """Returns the vectors at each step, in the order of the selection.

    A name that occurs in several topics is preceded by its topic.
    """
    columns = {
        (stream.topic, name): stream.values[shown, column]
        for stream in found
        for shown in [resampling.shown(stream.track, steps)]
        for column, name in enumerate(stream.names)
    }
    ordered = [
        (topic, name)
        for topic, names in selection.items()
        for name in names or [each for of, each in columns if of == topic]
    ]
    every = [name for _, name in ordered]
    return Vector(
        tuple(name if every.count(name) == 1 else f"{topic}/{name}" for topic, name in ordered),
        np.stack([columns[key] for key in ordered], axis=1) if ordered else np.empty(0),
    )


def left_numbers(
    selections: Sequence[Selection], kinds: Mapping[str, str], rows: Mapping[str, Rows]
) -> dict[str, str]:
    """Returns the numbers of the chosen topics that no selection names, with the reason."""
    skipped_fields: dict[str, str] = {}
    for topic, found in rows.items():
        offered = names_of(kinds[topic], found)
        chosen = [selection[topic] for selection in selections if topic in selection]
        named = {name for names in chosen for name in names or offered}
        skipped_fields |= {f"{topic} {name}": NOT_CHOSEN for name in offered if name not in named}
    return skipped_fields
