"""Recordings of rosbag2: the files of an episode, and databases of SQLite (`.db3`).

rosbag2 splits a long recording into files `NAME_0.mcap`, `NAME_1.mcap` and so on, which
`metadata.yaml` beside them lists in their order.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stringline.datasets.files.limits import MOST_YAML_BYTES
from stringline.datasets.files.yaml_file import parse_yaml
from stringline.datasets.formats.checks import inside, read_inside, visible_files
from stringline.datasets.formats.foreign import ForeignDataError, last_number
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.mcap_recording import DAMAGE, McapRecording, times_of
from stringline.datasets.formats.recording import (
    JoinedRecording,
    Message,
    Recording,
    Topic,
    plain,
)

EXTRA = "rosbag2"
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
        records = optional_library("mcap.records", package="mcap", extra=EXTRA)
        library = optional_library("mcap_ros2.decoder", package="mcap-ros2-support", extra=EXTRA)
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
        library = optional_library("rosbags.typesys", package="rosbags", extra=EXTRA)
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
        library = optional_library("rosbags.rosbag2", package="rosbags", extra=EXTRA)
        failures = (
            library.ReaderError,
            optional_library("apsw", extra=EXTRA).Error,
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
