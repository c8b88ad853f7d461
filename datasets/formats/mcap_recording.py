"""MCAP files (https://mcap.dev/spec): topics, messages as plain values, and steps by time stamps.

Messages of ROS 2 (CDR with `ros2msg` schemas), protobuf and JSON are decoded. The decoded size
of the chunks is checked before any is decoded: the libraries would allocate the size that a
chunk claims, and decode LZ4 to any size.

Topics are resampled to the steps of an episode, by time stamps in ns.
"""

import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.files.limits import MOST_CHUNK_BYTES, MOST_STEPS, zstd_size
from stringline.datasets.formats.checks import SAME_TIME_S
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library

EXTRA = "mcap"
LARGEST_RECORD_BYTES = 2**30
_LZ4_RATIO = 255  # A byte of LZ4 stands for at most 255.
_RECORD_HEAD_BYTES = 9  # An opcode (uint8) and a length (uint64).


def check_chunks(stream: IO[bytes]) -> None:
    """Checks the size of all chunks that a reader of the file may decode.

    Raises:
        ForeignDataError: One decodes to more than `MOST_CHUNK_BYTES`.
    """
    for number, chunk in enumerate(_chunks(stream)):
        size = max(chunk.uncompressed_size, _decoded_bytes(chunk))
        if size > MOST_CHUNK_BYTES:
            raise ForeignDataError(
                f"Chunk {number} decodes to {size} bytes or more; allowed: {MOST_CHUNK_BYTES}."
            )


def _chunks(stream: IO[bytes]) -> Iterator[Any]:
    """Yields the chunks in the summary, where none belongs, and those of the index or the file."""
    kinds = optional_library("mcap.records", package="mcap", extra=EXTRA)
    data = optional_library("mcap.data_stream", package="mcap", extra=EXTRA)
    library = optional_library("mcap.reader", package="mcap", extra=EXTRA)
    stream.seek(-(library.FOOTER_SIZE + library.MAGIC_SIZE), io.SEEK_END)
    footer = next(_records(stream, skip_magic=True))
    places = []
    if isinstance(footer, kinds.Footer) and footer.summary_start:
        stream.seek(footer.summary_start)
        for record in _records(stream, skip_magic=True):
            if isinstance(record, kinds.Chunk):
                yield record
            elif isinstance(record, kinds.ChunkIndex):
                places.append(record.chunk_start_offset)
    for place in places:
        stream.seek(place + _RECORD_HEAD_BYTES)
        yield kinds.Chunk.read(data.ReadDataStream(stream))
    if not places:  # Then a reader goes through the whole file.
        stream.seek(0)
        yield from (each for each in _records(stream) if isinstance(each, kinds.Chunk))


def _records(stream: IO[bytes], *, skip_magic: bool = False) -> Iterator[Any]:
    """Yields the records from a place on, and chunks as they are stored."""
    library = optional_library("mcap.stream_reader", package="mcap", extra=EXTRA)
    found: Iterator[Any] = library.StreamReader(
        stream, skip_magic, emit_chunks=True, record_size_limit=LARGEST_RECORD_BYTES
    ).records
    return found


def _decoded_bytes(chunk: Any) -> int:
    """Returns the size to which a chunk decodes, or a larger one than allowed."""
    if chunk.compression == "zstd":
        try:
            return zstd_size(chunk.data)
        except ValueError:  # The decoder allocates the size in the chunk, or fails.
            return 0
    if chunk.compression != "lz4":
        return len(chunk.data)
    lz4 = optional_library("lz4.frame", package="lz4", extra=EXTRA)
    claimed = int(lz4.get_frame_info(chunk.data)["content_size"])
    if claimed or len(chunk.data) * _LZ4_RATIO <= MOST_CHUNK_BYTES:
        return claimed
    decoder = lz4.LZ4FrameDecompressor()
    return len(decoder.decompress(chunk.data, max_length=MOST_CHUNK_BYTES + 1))


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


Times = NDArray[np.int64]
_CLOCKS_APART_NS = 10**9


def topic_times(topic: str, messages: Sequence[Message], *, stamped: bool) -> Times:
    """Returns the times (N,) of the messages of a topic, which must not decrease.

    `stamped` takes the time in a message; messages without a field for it, and others, count from
    when they were recorded.
    """
    if not messages:
        raise ForeignDataError(f"{topic} has no messages.")
    found = [message.stamp_ns if stamped else None for message in messages]
    if 0 in found:
        raise ForeignDataError(
            f"{topic} at message {found.index(0)} has no time stamp; set format.clock=log for the "
            "times of recording."
        )
    times = np.array(
        [
            message.logged_ns if stamp is None else stamp
            for message, stamp in zip(messages, found, strict=True)
        ],
        np.int64,
    )
    back = np.flatnonzero(np.diff(times) < 0)
    if len(back):
        place = int(back[0]) + 1
        raise ForeignDataError(
            f"The clock of {topic} goes back by {(times[place - 1] - times[place]) / 1e9:.6g} s "
            f"at message {place}."
        )
    return times


def check_clocks(times: Mapping[str, Times], logged: Mapping[str, Times]) -> None:
    """Checks that the time stamps of all topics come from one clock."""
    offsets = {topic: int(np.median(logged[topic] - times[topic])) for topic in times}
    first = min(offsets, key=offsets.__getitem__)
    last = max(offsets, key=offsets.__getitem__)
    apart = offsets[last] - offsets[first]
    if apart > _CLOCKS_APART_NS:
        raise ForeignDataError(
            f"The clocks of {first} and {last} differ by {apart / 1e9:.6g} s; set format.clock=log "
            "for the times of recording."
        )


@dataclass(frozen=True)
class Timeline:
    """The steps of an episode, and the times of the topics.

    Attributes:
        steps: Times (T,) of the steps.
        times: Times (N,) of the messages by topic.
        latest: For each topic that steps show, the number of the last message (T,).
    """

    steps: Times
    times: Mapping[str, Times]
    latest: Mapping[str, NDArray[np.intp]]


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

    def timeline(self, messages: Mapping[str, Sequence[Message]], shown: Sequence[str]) -> Timeline:
        """Returns the steps at which all `shown` topics have a message."""
        times = {
            topic: topic_times(topic, found, stamped=self.stamped)
            for topic, found in messages.items()
        }
        logged = {
            topic: np.array([message.logged_ns for message in found], np.int64)
            for topic, found in messages.items()
        }
        check_clocks(times, logged)
        steps = self._steps({topic: times[topic] for topic in shown})
        gaps = {topic: None if topic in self.held else self.largest_gap_ns for topic in shown}
        found = {topic: latest(topic, times[topic], steps, gaps[topic]) for topic in shown}
        return Timeline(steps, times, found)

    def _steps(self, times: Mapping[str, Times]) -> Times:
        """Returns the times (T,) from the latest start to the earliest end of the topics."""
        ending = [topic for topic in times if topic not in self.held] or list(times)
        begins = max(times, key=lambda topic: int(times[topic][0]))
        ends = min(ending, key=lambda topic: int(times[topic][-1]))
        start = int(times[begins][0])
        end = int(times[ends][-1])
        if end < start:
            raise ForeignDataError(
                f"{ends} ends {(start - end) / 1e9:.6g} s before {begins} starts; all topics must "
                "overlap."
            )
        count = int((end - start) * self.control_hz / 1e9) + 1
        if count > MOST_STEPS:
            raise ForeignDataError(
                f"{begins} and {ends} have {count} steps in common; allowed: {MOST_STEPS}."
            )
        steps: Times = np.rint(np.arange(count) * (1e9 / self.control_hz)).astype(np.int64)
        return start + steps


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
