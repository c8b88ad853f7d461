"""Limits of files that come from elsewhere, and YAML files, read within them.

A few bytes of a compressed or sparse file may stand for many gigabytes. Each limit is several times
above what recordings of robots have. The decoded size of a frame of zstd is in its header; a member
of a zip file is read up to a limit.
"""

import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import yaml

MOST_METADATA_BYTES = 16 * 2**20
"""A JSON document: parsed, it needs up to 25 times its size. `info.json` of LeRobot's largest sets
has less than 1 MB."""

MOST_LINES_BYTES = 256 * 2**20
"""A file with one JSON document per line: about a million episodes."""

MOST_YAML_BYTES = 4 * 2**20
"""A YAML file: PyYAML needs about 500 times its size."""

MOST_CHUNK_BYTES = 256 * 2**20
"""A decoded chunk of an array, the least that can be read at once: 290 images of 480x640."""

MOST_PIXELS = 2**25
"""An image: 8K video has 33.2 million pixels, this is 33.5 million."""

MOST_STEPS = 2**20
"""Steps of an episode: 5.8 hours at 50 Hz."""

MOST_NUMBERS = 1024
"""Numbers of a vector per step."""

MOST_TABLE_BYTES = 512 * 2**20
"""The columns that are read from a parquet file at once: LeRobot's files have 100 MB."""

MOST_TABLE_ROWS = 2**24
"""Rows of a parquet file: 93 hours at 50 Hz."""

MOST_RATIO = 1100
"""Decoded per stored bytes of an HDF5 data set: deflate reaches 1032. Chunks that were never
written, which cost no bytes, exceed it."""

MOST_DICTIONARY_BYTES = 64 * 2**20
"""The dictionary of an LZMA decoder: the largest of the presets of xz is 64 MiB."""

MOST_OMITTED_CHUNKS = 2**16
"""Chunks of a series of a zarr episode that are not stored, which cost no bytes."""

MOST_OMITTED_BYTES = 2**32
"""Their decoded size: 4600 black images of 480x640."""

MOST_ANNOTATION_BYTES = 128 * 2**20
"""A JSON file of DROID's annotations: those of 76,000 episodes have about 40 MB."""

MOST_SERIES = 1024
"""Further series of an episode: sets of many robots have some dozens."""


_MAGIC = b"\x28\xb5\x2f\xfd"


def zstd_size(data: bytes) -> int:
    """Returns the decoded size in the header of a frame (RFC 8878, 3.1.1.1).

    A decoder allocates it before it finds that the frame has less.

    Raises:
        ValueError: The data is not a frame, or its header does not contain the size.
    """
    if data[:4] != _MAGIC or len(data) < 5:
        raise ValueError("a chunk is not a frame of zstd")
    flag = data[4] >> 6
    single = data[4] >> 5 & 1
    dictionary = data[4] & 3
    width = (1 if single else 0, 2, 4, 8)[flag]
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    if not width:
        raise ValueError("the header of a chunk does not contain its decoded size")
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)


# The module decodes the other methods without a bound.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Returns a member with at most `most` bytes.

    Raises:
        KeyError: It does not exist.
        ValueError: It is larger, or compressed by another method than deflate.
        BadZipFile: It is damaged.
    """
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS:
        raise ValueError(
            f"{name} is compressed by method {info.compress_type}; allowed: none or deflate."
        )
    with archive.open(info) as member:
        data = member.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} has more than the allowed {most} bytes.")
    return data


# Nodes of a file whose aliases are replaced by what they stand for.
MOST_NODES = 1_000_000
# Nodes of the text itself: PyYAML reads about 20,000 in a second.
MOST_WRITTEN = 100_000
DEEPEST = 100


def read_yaml(kind: str, path: Path) -> Any:
    """Returns the content of a file; messages begin with `kind`, such as "The limits file".

    Raises:
        ValueError: The file cannot be read, is not valid YAML, or expands to too much.
    """
    try:
        # Opening a pipe would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{kind} {path} is not a file.")
            data = file.read(MOST_YAML_BYTES + 1)
        if len(data) > MOST_YAML_BYTES:
            raise ValueError(f"{kind} {path} has more than the allowed {MOST_YAML_BYTES} bytes.")
        return parse_yaml(data.decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ValueError(f"{kind} {path} cannot be read: {reason}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{kind} {path} is not valid YAML: {error}.") from error


def parse_yaml(text: str) -> Any:
    """Returns the content of a text, as `yaml.safe_load` does.

    Aliases of aliases let a short text stand for a huge tree, which `safe_load` returns at once and
    whose first reader never ends. So the nodes are counted before anything is made of them.

    Raises:
        yaml.YAMLError: The text is not valid YAML, gives a key twice, contains itself, stands for
            more than a million nodes or has more than 100,000 of its own, or is nested more than
            100 levels deep.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _count(root, {})
        return loader.construct_document(root)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Reads texts of a limited depth, whatever the interpreter's limit of recursion is."""

    _depth = 0
    _written = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Returns the next node, as PyYAML's composer does."""
        if self._depth == DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} levels deep")
        self._written += 1
        if self._written > MOST_WRITTEN:
            raise yaml.YAMLError(f"it has more than {MOST_WRITTEN} entries; allowed: fewer")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _count(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """Returns the nodes below and including one; `counts` has those of completed nodes."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node in counts:
        if not counts[node]:
            raise yaml.YAMLError("an alias contains itself")
        return counts[node]
    counts[node] = 0
    children = node.value
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        children = [part for pair in children for part in pair]
    count = 1 + sum(_count(child, counts) for child in children)
    if count > MOST_NODES:
        raise yaml.YAMLError(
            f"with its aliases it has more than {MOST_NODES} entries; allowed: fewer"
        )
    counts[node] = count
    return count


def _check_keys(node: yaml.MappingNode) -> None:
    """Checks that no key is given twice, of which PyYAML would take the last one in silence."""
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = (key.tag, key.value)
        line = key.start_mark.line + 1
        if name in lines:
            raise yaml.YAMLError(
                f"the key {key.value!r} is given twice, in lines {lines[name]} and {line}; keep one"
            )
        lines[name] = line
