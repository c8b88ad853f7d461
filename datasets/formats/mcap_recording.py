"""MCAP files (https://mcap.dev/spec): their topics, and their messages as plain values.

Messages of ROS 2 (CDR with `ros2msg` schemas), protobuf and JSON are decoded.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.mcap_chunks import EXTRA, LARGEST_RECORD_BYTES, check_chunks

Plain = Mapping[str, Any]

_ENCODINGS = (("cdr", "ros2msg"), ("protobuf", "protobuf"), ("json", "jsonschema"), ("json", ""))
# Errors of the decoders for damaged messages; those of lz4 are RuntimeErrors.
_DAMAGE = (ValueError, KeyError, IndexError, TypeError, EOFError, OSError, RuntimeError)


@dataclass(frozen=True)
class Topic:
    """A topic of a recording.

    Attributes:
        kind: Name of the message type without its package, such as `JointState`.
        type_name: The whole name, such as `sensor_msgs/msg/JointState`.
        encoding: Encodings of messages and schema.
    """

    kind: str
    type_name: str
    encoding: tuple[str, str]


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


class McapRecording:
    """A recording; each iteration over its messages opens the file again."""

    def __init__(self, path: Path) -> None:
        """Checks the sizes of the chunks of a file, and reads its topics."""
        self.path = path
        with self._opened() as reader:
            with path.open("rb") as stream:
                check_chunks(stream)
            self.topics = _topics(reader)

    def check_topics(self, names: Iterable[str]) -> None:
        """Checks that topics exist and that their messages can be decoded."""
        for name in names:
            if name not in self.topics:
                raise ForeignDataError(str(unknown_name("topic", name, self.topics)))
            message, schema = self.topics[name].encoding
            if (message, schema) not in _ENCODINGS:
                raise ForeignDataError(
                    f"{name} has messages encoded as {message!r} with schemas {schema!r}; allowed: "
                    "cdr with ros2msg, protobuf, json."
                )

    def of_kinds(self, *kinds: str) -> list[str]:
        """Returns the names of the topics whose messages are of these kinds."""
        return [name for name, topic in self.topics.items() if topic.kind in kinds]

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yields the messages of some topics in the order of recording."""
        wanted = list(topics)
        with self._opened() as reader:
            for _, channel, message, content in reader.iter_decoded_messages(wanted):
                yield Message(channel.topic, int(message.log_time), plain(content))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Opens the file; damage found within the block raises `ForeignDataError`."""
        library = optional_library("mcap.reader", package="mcap", extra=EXTRA)
        failures = (
            optional_library("mcap.exceptions", package="mcap", extra=EXTRA).McapError,
            optional_library("zstandard", extra=EXTRA).ZstdError,
            struct.error,
            *_DAMAGE,
        )
        decoders = _decoders()
        try:
            with self.path.open("rb") as stream:
                yield library.SeekingReader(
                    stream, True, decoders, record_size_limit=LARGEST_RECORD_BYTES
                )
        except ForeignDataError:
            raise
        except failures as error:
            why = str(error) or type(error).__name__
            raise ForeignDataError(
                f"{self.path.name} cannot be read as MCAP; it is truncated, damaged or another "
                f"format ({why[:200]})."
            ) from error


class _JsonDecoders:
    """The decoder of JSON messages, as mcap takes decoders."""

    @staticmethod
    def decoder_for(message_encoding: str, _: Any) -> Callable[[bytes], Any] | None:
        """Returns the function that decodes a message."""
        return json.loads if message_encoding == "json" else None


def _decoders() -> list[Any]:
    libraries = {
        "mcap_ros2.decoder": "mcap-ros2-support",
        "mcap_protobuf.decoder": "mcap-protobuf-support",
    }
    found = [
        optional_library(module, package=package, extra=EXTRA).DecoderFactory()
        for module, package in libraries.items()
    ]
    return [*found, _JsonDecoders()]


def _topics(reader: Any) -> dict[str, Topic]:
    summary = reader.get_summary()
    if summary is not None and summary.channels:
        pairs = [
            (channel, summary.schemas.get(channel.schema_id))
            for channel in summary.channels.values()
        ]
    else:  # Without a summary, only the messages show their topics.
        seen = {message[1].id: message[:2] for message in reader.iter_messages()}
        pairs = [(channel, schema) for schema, channel in seen.values()]
    found = {}
    for channel, schema in pairs:
        name = schema.name if schema else ""
        kind = name.replace("/", ".").rpartition(".")[2]
        encoding = (channel.message_encoding, schema.encoding if schema else "")
        found[channel.topic] = Topic(kind, name, encoding)
    return dict(sorted(found.items()))


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
