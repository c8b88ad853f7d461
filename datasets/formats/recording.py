"""Recordings of ROS 2 and Foxglove: topics, and messages as plain values.

A recording is a file or several that follow one another, as rosbag2 splits a long one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.formats.foreign import ForeignDataError

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
