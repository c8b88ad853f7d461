"""MCAP files (https://mcap.dev/spec), with messages of ROS 2, protobuf and JSON.

The decoded size of the chunks is checked before any is decoded: the libraries would allocate the
size that a chunk claims, and decode LZ4 to any size.
"""

import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from stringline.datasets.files.limits import MOST_CHUNK_BYTES, zstd_size
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.recording import Message, Recording, Topic, plain

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
    places = []
    for record in _summary(stream):
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


def _summary(stream: IO[bytes]) -> Iterator[Any]:
    """Yields the records of the summary at the end of a file; none without a summary."""
    kinds = optional_library("mcap.records", package="mcap", extra=EXTRA)
    library = optional_library("mcap.reader", package="mcap", extra=EXTRA)
    stream.seek(-(library.FOOTER_SIZE + library.MAGIC_SIZE), io.SEEK_END)
    footer = next(_records(stream, skip_magic=True))
    if isinstance(footer, kinds.Footer) and footer.summary_start:
        stream.seek(footer.summary_start)
        yield from _records(stream, skip_magic=True)


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


def times_of(path: Path) -> tuple[int, int] | None:
    """Returns when the first and the last message of a file were recorded, ns, if it says so."""
    kinds = optional_library("mcap.records", package="mcap", extra=EXTRA)
    with path.open("rb") as stream:
        for record in _summary(stream):
            if isinstance(record, kinds.Statistics) and record.message_count:
                return int(record.message_start_time), int(record.message_end_time)
    return None


_ENCODINGS = (("cdr", "ros2msg"), ("protobuf", "protobuf"), ("json", "jsonschema"), ("json", ""))
# Errors of the decoders for damaged messages; those of lz4 are RuntimeErrors.
DAMAGE = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    EOFError,
    OSError,
    RuntimeError,
    struct.error,
)


class McapRecording(Recording):
    """An MCAP file; each iteration over its messages opens the file again."""

    def __init__(self, path: Path) -> None:
        """Checks the sizes of the chunks of a file, and reads its topics."""
        self.name = path.name
        self._path = path
        with self._opened() as reader:
            with path.open("rb") as stream:
                check_chunks(stream)
            self.topics = _topics(reader)

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
            *DAMAGE,
        )
        decoders = _decoders()
        try:
            with self._path.open("rb") as stream:
                yield library.SeekingReader(
                    stream, True, decoders, record_size_limit=LARGEST_RECORD_BYTES
                )
        except ForeignDataError:
            raise
        except failures as error:
            why = str(error) or type(error).__name__
            raise ForeignDataError(
                f"{self.name} cannot be read as MCAP; it is truncated, damaged or another "
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
    found: dict[str, Topic] = {}
    for channel, schema in pairs:
        message = channel.message_encoding
        described = schema.encoding if schema else ""
        problem = (
            f"has messages encoded as {message!r} with schemas {described!r}; allowed: cdr with "
            "ros2msg, protobuf, json."
        )
        problem = "" if (message, described) in _ENCODINGS else problem
        topic = Topic.of(schema.name if schema else "", problem)
        if found.setdefault(channel.topic, topic).type_name != topic.type_name:
            problem = f"has messages of {found[channel.topic].type_name} and {topic.type_name}."
            found[channel.topic] = replace(topic, problem=problem)
    return dict(sorted(found.items()))
