"""Files of recordings of ROS 2 and Foxglove: MCAP, and the databases of rosbag2.

The decoded size of the chunks is checked before any is decoded: the libraries would allocate the
size that a chunk claims, and decode LZ4 to any size.

rosbag2 splits a long recording into files `NAME_0.mcap`, `NAME_1.mcap` and so on, which
`metadata.yaml` beside them lists in their order.
"""

import io
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import yaml

from stringline.datasets.command.installation import optional_library
from stringline.datasets.files.limits import (
    MOST_CHUNK_BYTES,
    MOST_YAML_BYTES,
    parse_yaml,
    zstd_size,
)
from stringline.datasets.formats.checks import inside, read_inside, visible_files
from stringline.datasets.formats.foreign import ForeignDataError, last_number
from stringline.datasets.formats.recording import (
    JoinedRecording,
    Message,
    Recording,
    Topic,
    plain,
)

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


ROSBAG2_EXTRA = "rosbag2"
METADATA = "metadata.yaml"
_CONTENT = "rosbag2_bagfile_information"
_DATABASE = ".db3"
_COMPRESSED = ".zstd"
_PATTERNS = [f"**/*{suffix}{end}" for suffix in (".mcap", _DATABASE) for end in ("", _COMPRESSED)]
_PART = re.compile(r"(?P<stem>.+)_(?P<number>\d+)\.(mcap|db3)(\.zstd)?")
_UNCOMPRESSED = (
    "allowed: recordings that rosbag2 has not compressed; `ros2 bag convert` writes one with "
    "`compression_mode: none`."
)


@dataclass(frozen=True)
class Take:
    """The files of an episode.

    Attributes:
        root: The data set.
        name: Name of the file, or of the folder with several.
        number: Number of the episode.
        files: The files in their order.
        problem: Why they cannot be read; empty if they can.
        neighbours: Files before and after a single one by their numbers, without `metadata.yaml`.
    """

    root: Path
    name: str
    number: int
    files: tuple[Path, ...]
    problem: str = ""
    neighbours: tuple[Path, ...] = ()

    def opened(self) -> Recording:
        """Returns the recording.

        Raises:
            ForeignDataError: A file is missing, damaged, compressed, or leads out of the data set.
        """
        if self.problem:
            raise ForeignDataError(self.problem)
        parts: list[Recording] = [
            SqliteRecording(file) if file.suffix == _DATABASE else McapRecording(file)
            for file in (inside(self.root, file) for file in self.files)
        ]
        return parts[0] if len(parts) == 1 else JoinedRecording(self.name, parts)

    def check_whole(self, gap_ns: int) -> None:
        """Checks that no neighbour continues the file within `gap_ns`, as parts of a recording do.

        rosbag2 writes `metadata.yaml` at the end of a recording, so one that was killed has none.
        """
        for other in self.neighbours:
            with suppress(Exception):  # Damage is reported where the file itself is read.
                first, second = sorted([_times(self.files[0]), _times(inside(self.root, other))])
                if 0 <= second[0] - first[1] <= gap_ns:
                    break
        else:
            return
        raise ForeignDataError(
            f"{self.files[0].name} and {other.name} follow one another within {gap_ns / 1e9:g} s: "
            f"parts of one recording without {METADATA}? `ros2 bag reindex FOLDER` writes it. "
            "Episodes of their own belong into folders of their own."
        )


def takes(path: Path) -> list[Take]:
    """Returns the episodes in a folder and its subfolders, or that of a file.

    Raises:
        ValueError: There are none, or the file is one of several of a recording.
    """
    if path.is_file():
        listed, _ = _listed(path.parent, path.parent)
        if len(listed) > 1 and path.name in listed:
            raise ValueError(
                f"{path} is one of {len(listed)} files of a recording; path={path.parent} imports "
                "it as one episode."
            )
        return [_single(path, path, path.name, 0, ())]
    folders: dict[Path, list[Path]] = {}
    for file in visible_files(path, *_PATTERNS):
        folders.setdefault(file.parent, []).append(file)
    found: list[Take] = []
    for folder, files in folders.items():
        found += _takes_of(path, folder, files, len(found))
    if not found:
        raise ValueError(f"There are no .mcap and .db3 files in {path}.")
    return found


def _takes_of(root: Path, folder: Path, files: Sequence[Path], number: int) -> Iterator[Take]:
    """Yields the episodes of the files of one folder."""
    listed, problem = _listed(root, folder)
    own = [file for file in files if file.name in listed]
    if listed:
        missing = [name for name in listed if name not in {file.name for file in own}]
        stems = {part[0] for name in listed if (part := _part(Path(name)))}
        beside = [file for file in files if file not in own and (_part(file) or "-")[0] in stems]
        if missing or beside:
            what = f"lists {missing[0]}, which is missing" if missing else ""
            what = what or f"does not list {beside[0].name}, which has the name of a part"
            problem = f"{METADATA} {what}. `ros2 bag reindex {folder.name}` writes it anew."
        own = [folder / name for name in listed]
        whole = folder.name if folder == root else folder.relative_to(root).as_posix()
        if len(own) > 1 or beside:
            yield Take(root, whole, last_number(folder.name, number), tuple(own), problem)
        else:
            yield _single(root, own[0], _name(root, own[0]), number, (), problem)
        number += 1
        files = [file for file in files if file not in (*own, *beside)]
    parts = {key: file for file in files if (key := _part(file))}
    for file in files:
        stem, place = _part(file) or ("", 0)
        near = [parts[key] for key in ((stem, place - 1), (stem, place + 1)) if key in parts]
        yield _single(
            root,
            file,
            _name(root, file),
            number,
            () if listed else near,
            "" if listed else problem,
        )
        number += 1


def _single(
    root: Path, file: Path, name: str, number: int, near: Sequence[Path], problem: str = ""
) -> Take:
    if file.suffix == _COMPRESSED:
        problem = problem or f"{file.name} is compressed; {_UNCOMPRESSED}"
    return Take(root, name, last_number(file.stem, number), (file,), problem, tuple(near))


def _name(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix()


def _part(file: Path) -> tuple[str, int] | None:
    """Returns the name and the number of a file that may be a part of a recording."""
    found = _PART.fullmatch(file.name)
    return (f"{found['stem']}{file.suffix}", int(found["number"])) if found else None


def _listed(root: Path, folder: Path) -> tuple[list[str], str]:
    """Returns the names of the files in `metadata.yaml`, none without it, and what is wrong."""
    if not (folder / METADATA).is_file():
        return [], ""
    try:
        content = parse_yaml(read_inside(root, folder / METADATA, MOST_YAML_BYTES).decode())
        if not isinstance(content, dict) or _CONTENT not in content:  # That of another program.
            return [], ""
        information = content[_CONTENT]
        names = [Path(str(name)).name for name in information["relative_file_paths"]]
        mode = str(information.get("compression_mode") or "none").lower()
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        why = " ".join(f"{error}".split()).rstrip(".")
        return [], (
            f"{METADATA} does not describe a recording: {why}. `ros2 bag reindex {folder.name}` "
            "writes it anew."
        )
    problem = (
        "" if mode == "none" else f"{METADATA} says `compression_mode: {mode}`; {_UNCOMPRESSED}"
    )
    return names, problem


def _times(file: Path) -> tuple[int, int]:
    """Returns when the first and the last message of a file were recorded, ns."""
    if file.suffix == _DATABASE:
        return SqliteRecording(file).times
    found = times_of(file)
    if found is None:
        raise ForeignDataError(f"{file.name} does not say when it was recorded.")
    return found


class SqliteRecording(Recording):
    """A database of rosbag2; each iteration over its messages opens the file again.

    Attributes:
        times: When the first and the last message were recorded, ns.
    """

    def __init__(self, path: Path) -> None:
        """Reads the topics of a database.

        Raises:
            ForeignDataError: It is damaged, or was not closed.
        """
        self.name = path.name
        self._path = path
        self._decoders: dict[str, Any] = {}
        unsaved = path.with_name(f"{path.name}-wal")
        if unsaved.is_file() and unsaved.stat().st_size:
            raise ForeignDataError(
                f"{path.name} was not closed: {unsaved.name} holds messages of it. "
                f"`sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'` moves them into it."
            )
        with self._opened() as reader:
            self.times = (int(reader.start_time), int(reader.end_time) - 1)
            topics: dict[str, Topic] = {}
            for number, connection in enumerate(reader.connections, 1):
                topic = Topic.of(connection.msgtype, self._problem(number, connection))
                if topics.setdefault(connection.topic, topic).type_name != topic.type_name:
                    both = f"{topics[connection.topic].type_name} and {topic.type_name}"
                    topic = Topic.of(topic.type_name, f"has messages of {both}.")
                    topics[connection.topic] = topic
            self.topics = dict(sorted(topics.items()))

    def _problem(self, number: int, connection: Any) -> str:
        """Makes the decoder of a topic, or returns why there is none.

        Databases before ROS 2 Iron have no definitions of messages, those of the types that come
        with ROS 2 are known.
        """
        if connection.ext.serialization_format != "cdr":
            return f"has messages encoded as {connection.ext.serialization_format!r}; allowed: cdr."
        text = self._definition(connection)
        if not text:
            return (
                f"has messages of the type {connection.msgtype!r}, whose definition as ros2msg the "
                "file lacks; `ros2 bag convert` on a system with that type writes an MCAP file "
                "with it."
            )
        records = optional_library("mcap.records", package="mcap", extra=ROSBAG2_EXTRA)
        library = optional_library(
            "mcap_ros2.decoder", package="mcap-ros2-support", extra=ROSBAG2_EXTRA
        )
        schema = records.Schema(
            id=number, data=text.encode(), encoding="ros2msg", name=connection.msgtype
        )
        self._decoders[connection.topic] = library.DecoderFactory().decoder_for("cdr", schema)
        return ""

    @staticmethod
    def _definition(connection: Any) -> str:
        """Returns the definition of a message type, or an empty text."""
        if connection.msgdef.format.name == "MSG":
            return str(connection.msgdef.data)
        library = optional_library("rosbags.typesys", package="rosbags", extra=ROSBAG2_EXTRA)
        known = library.get_typestore(library.Stores.LATEST)
        if connection.msgtype not in known.fielddefs:
            return ""
        return str(known.generate_msgdef(connection.msgtype, ros_version=2)[0])

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yields the messages of some topics in the order of recording."""
        wanted = set(topics)
        with self._opened() as reader:
            chosen = [each for each in reader.connections if each.topic in wanted]
            for connection, logged, data in reader.messages(chosen) if chosen else ():
                content = plain(self._decoders[connection.topic](data))
                yield Message(connection.topic, int(logged), content)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Opens the file; damage found within the block raises `ForeignDataError`."""
        library = optional_library("rosbags.rosbag2", package="rosbags", extra=ROSBAG2_EXTRA)
        failures = (
            library.ReaderError,
            optional_library("apsw", extra=ROSBAG2_EXTRA).Error,
            AttributeError,
            *DAMAGE,
        )
        try:
            with library.Reader(self._path) as reader:
                yield reader
        except ForeignDataError:
            raise
        except failures as error:
            why = str(error) or type(error).__name__
            raise ForeignDataError(
                f"{self.name} cannot be read as a database of rosbag2; it is truncated, damaged or "
                f"another format ({why[:200]})."
            ) from error
