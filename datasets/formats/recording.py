"""Recordings of ROS 2 and Foxglove: topics, messages as plain values, their times and vectors.

A recording is a file or several that follow one another, as rosbag2 splits a long one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_STEPS
from stringline.datasets.formats.checks import SAME_TIME_S, numbers
from stringline.datasets.formats.foreign import NOT_CHOSEN, ForeignDataError

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Topic:
    """A topic of a recording.

    Attributes:
        kind: Name of the message type without its package, such as `JointState`.
        type_name: The whole name, such as `sensor_msgs/msg/JointState`.
        problem: Why its messages cannot be decoded, after the name of the topic; empty if they can.
    """

    kind: str
    type_name: str
    problem: str = ""

    @staticmethod
    def of(type_name: str, problem: str = "") -> "Topic":
        """Returns the topic of a message type."""
        return Topic(type_name.replace("/", ".").rpartition(".")[2], type_name, problem)


@dataclass(frozen=True)
class Message:
    """A message: its topic, when it was recorded, and its fields by name."""

    topic: str
    logged_ns: int
    content: Plain

    @property
    def stamp_ns(self) -> int | None:
        """Time in the message, `header.stamp` or `timestamp`; None without such a field."""
        stamp = self.content.get("header", {}).get("stamp", self.content.get("timestamp"))
        return nanoseconds(stamp) if isinstance(stamp, Mapping) else None


class Recording(ABC):
    """A recording.

    Attributes:
        name: Name of the file or folder in messages.
        topics: Topics by name.
    """

    name: str
    topics: Mapping[str, Topic]

    @abstractmethod
    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yields the messages of some topics in the order of recording."""

    def check_topics(self, names: Iterable[str]) -> None:
        """Checks that topics exist and that their messages can be decoded."""
        for name in names:
            if name not in self.topics:
                raise ForeignDataError(str(unknown_name("topic", name, self.topics)))
            if problem := self.topics[name].problem:
                raise ForeignDataError(f"{name} {problem}")

    def of_kinds(self, *kinds: str) -> list[str]:
        """Returns the names of the topics whose messages are of these kinds."""
        return [name for name, topic in self.topics.items() if topic.kind in kinds]


class JoinedRecording(Recording):
    """A recording in several files, in the order of recording."""

    def __init__(self, name: str, parts: Sequence[Recording]) -> None:
        """Joins the topics of the files.

        Raises:
            ForeignDataError: The files have different types of a topic.
        """
        self.name = name
        self._parts = parts
        found: dict[str, Topic] = {}
        for part in parts:
            for topic, entry in part.topics.items():
                if found.setdefault(topic, entry) != entry:
                    raise ForeignDataError(
                        f"{part.name}: {topic} has the type {entry.type_name!r}, but "
                        f"{found[topic].type_name!r} in a file before it."
                    )
        self.topics = dict(sorted(found.items()))

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yields the messages of one file after the other."""
        wanted = list(topics)
        for part in self._parts:
            yield from part.messages([topic for topic in wanted if topic in part.topics])


def plain(value: Any) -> Any:
    """Returns a decoded message as dictionaries of its fields, lists, numbers, text and bytes.

    Optional numbers and texts of protobuf that are not set are left out.
    """
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if hasattr(value, "DESCRIPTOR"):  # Of protobuf.
        return {
            field.name: plain(getattr(value, field.name))
            for field in value.DESCRIPTOR.fields
            if field.message_type or not field.has_presence or value.HasField(field.name)
        }
    if hasattr(type(value), "_full_text"):  # Of ROS 2.
        return {name: plain(getattr(value, name)) for name in type(value).__slots__}
    if isinstance(value, (str, bytes, int, float, memoryview)) or value is None:
        return value
    items = list(value)
    return items if items and isinstance(items[0], (int, float)) else [plain(p) for p in items]


def nanoseconds(stamp: Plain) -> int:
    """Returns a time stamp in ns; ROS, protobuf and JSON differ in the names of its fields."""
    seconds = next((stamp[key] for key in ("sec", "seconds") if key in stamp), 0)
    rest = next((stamp[key] for key in ("nanosec", "nanos", "nsec") if key in stamp), 0)
    return int(seconds) * 10**9 + int(rest)


Times = NDArray[np.int64]
_CLOCKS_APART_NS = 10**9
_BY_LOG = "set format.clock=log for the times of recording."


@dataclass(frozen=True)
class Track:
    """The times of messages of one topic, or of one publisher of it.

    Attributes:
        name: Name in messages.
        times: Times (N,) that count; they do not decrease.
        logged: Times (N,) of recording.
        held: Whether a message stays valid without limit, and the last one does not end the
            episode.
    """

    name: str
    times: Times
    logged: Times
    held: bool = False


@dataclass(frozen=True)
class Resampling:
    """How topics become steps.

    Attributes:
        control_hz: Steps per second.
        stamped: Whether the times in the messages count, not those of recording.
        largest_gap_ns: Largest age of a message at a step.
        held: Topics without limit of age, which do not end the episode.
    """

    control_hz: float
    stamped: bool
    largest_gap_ns: int
    held: Sequence[str] = ()

    def track(self, topic: str, messages: Sequence[Message], name: str | None = None) -> Track:
        """Returns the times of messages, whose `name` in errors is by default the topic.

        Messages without a field for the time count from when they were recorded.

        Raises:
            ForeignDataError: There are none, or their times are not set or go back.
        """
        name = name or topic
        if not messages:
            raise ForeignDataError(f"{name} has no messages.")
        found = [message.stamp_ns if self.stamped else None for message in messages]
        if 0 in found:
            raise ForeignDataError(
                f"{name} at message {found.index(0)} has no time stamp; {_BY_LOG}"
            )
        logged = np.array([message.logged_ns for message in messages], np.int64)
        pairs = zip(messages, found, strict=True)
        times = np.array([m.logged_ns if stamp is None else stamp for m, stamp in pairs], np.int64)
        back = np.flatnonzero(np.diff(times) < 0)
        if len(back):
            place = int(back[0]) + 1
            advice = f"; {_BY_LOG}" if self.stamped else "."
            raise ForeignDataError(
                f"The clock of {name} goes back by {(times[place - 1] - times[place]) / 1e9:.6g} s "
                f"at message {place}{advice}"
            )
        return Track(name, times, logged, topic in self.held)

    def steps(self, shown: Sequence[Track], others: Sequence[Track] = ()) -> Times:
        """Returns the times (T,) from the latest start to the earliest end of the `shown` tracks.

        Raises:
            ForeignDataError: They have different clocks, also those of `others`, do not overlap, or
                have too many steps.
        """
        _check_clocks([*shown, *others])
        ending = [track for track in shown if not track.held] or list(shown)
        begins = max(shown, key=lambda track: int(track.times[0]))
        ends = min(ending, key=lambda track: int(track.times[-1]))
        start = int(begins.times[0])
        end = int(ends.times[-1])
        if end < start:
            raise ForeignDataError(
                f"{ends.name} ends {(start - end) / 1e9:.6g} s before {begins.name} starts; all "
                "topics must overlap."
            )
        count = int((end - start) * self.control_hz / 1e9) + 1
        if count > MOST_STEPS:
            raise ForeignDataError(
                f"{begins.name} and {ends.name} have {count} steps in common; allowed: "
                f"{MOST_STEPS}."
            )
        steps: Times = np.rint(np.arange(count) * (1e9 / self.control_hz)).astype(np.int64)
        return start + steps

    def shown(self, track: Track, steps: Times) -> NDArray[np.intp]:
        """Returns the message that each step (T,) shows, see `latest`."""
        gap = None if track.held else self.largest_gap_ns
        return latest(track.name, track.times, steps, gap)


def _check_clocks(tracks: Sequence[Track]) -> None:
    """Checks that the time stamps of all tracks come from one clock."""
    offsets = {track.name: int(np.median(track.logged - track.times)) for track in tracks}
    first = min(offsets, key=offsets.__getitem__)
    last = max(offsets, key=offsets.__getitem__)
    apart = offsets[last] - offsets[first]
    if apart > _CLOCKS_APART_NS:
        raise ForeignDataError(
            f"The clocks of {first} and {last} differ by {apart / 1e9:.6g} s; {_BY_LOG}"
        )


def latest(topic: str, times: Times, steps: Times, largest_gap_ns: int | None) -> NDArray[np.intp]:
    """Returns for each step (T,) the index of the last message that is not later.

    Less than `SAME_TIME_S` is not later: stamps and steps are rounded to nanoseconds, stamps often
    to microseconds. A robot has no later images when it acts, so it is not the nearest one.
    Messages older than `largest_gap_ns`, and steps before the first one, are errors.
    """
    found = np.searchsorted(times, steps + round(SAME_TIME_S * 1e9), side="right") - 1
    age = steps - times[np.maximum(found, 0)]
    wrong = found < 0
    if largest_gap_ns is not None:
        wrong |= age > largest_gap_ns
    if wrong.any():
        step = int(np.argmax(wrong))
        at = (steps[step] - steps[0]) / 1e9
        if found[step] < 0:
            raise ForeignDataError(f"{topic} has no message before {at:.6g} s.")
        raise ForeignDataError(
            f"{topic} has a gap: its last message at {at:.6g} s is {age[step] / 1e9:.6g} s old; "
            f"allowed: format.largest_gap_s={(largest_gap_ns or 0) / 1e9:g}, or any for topics in "
            "format.held."
        )
    return found


def nearest(times: Times, wanted: Times) -> NDArray[np.intp]:
    """Returns for each wanted time (K,) the index of the nearest message."""
    after = np.clip(np.searchsorted(times, wanted), 1, max(len(times) - 1, 1))
    earlier = wanted - times[after - 1] <= times[np.minimum(after, len(times) - 1)] - wanted
    return np.where(earlier, after - 1, np.minimum(after, len(times) - 1))


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
