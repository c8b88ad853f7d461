"""The `zarr.json` of a store or an episode: its version, and a checksum of itself.

Version 1 (until November 2026) had no checksums of metadata; its attributes are those of version 2.
Version 2 adds a checksum to the `zarr.json` of every group, which detects any changed byte. It is
an attribute, so that every zarr reads the file. It stands at a fixed position and covers all bytes
of the file, with eight zeros in its own place. The metadata of arrays follows from the attributes
of the group and needs no checksum.
"""

import errno
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.files.limits import MOST_METADATA_BYTES
from stringline.datasets.files.small_files import read_file
from stringline.datasets.store.zarr_layout import group_metadata

FORMAT_VERSION = 2
FIRST_CHECKSUMMED = 2
ROOT_KEY = "stringline_store"
IMAGES_KEY = "stringline_images"
"""The attribute of a store of labelled images; see `stringline.datasets.images.image_store`."""
EPISODE_KEY = "stringline_episode"
CHECKSUM_KEY = "stringline_checksum"
_BEFORE = b'{\n  "attributes": {\n    "' + CHECKSUM_KEY.encode() + b'": "'
_ENDS = b"\n    }"
_EMPTY = "00000000"
_END = len(_BEFORE) + len(_EMPTY)


class DamagedError(ValueError):
    """The bytes of a store or an episode have changed since they were written."""


def checksummed_group(attributes: Mapping[str, Any]) -> bytes:
    """Returns the `zarr.json` of a group with these attributes and the checksum."""
    # The first key keeps its position when the attributes contain an old checksum.
    data = group_metadata({CHECKSUM_KEY: _EMPTY} | dict(attributes) | {CHECKSUM_KEY: _EMPTY})
    return b"".join((_BEFORE, _checksum(data), data[_END:]))


def checksum_matches(data: bytes) -> bool:
    """Returns whether a `zarr.json` contains its own checksum."""
    return data[: len(_BEFORE)] == _BEFORE and data[len(_BEFORE) : _END] == _checksum(data)


def check_version(where: str, version: object) -> int:
    """Checks a format version and returns it."""
    if type(version) is not int or version < 1:
        raise ValueError(f"{where} was not written by Stringline: it names no format version.")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{where} has format version {version}; this Stringline reads up to {FORMAT_VERSION}. "
            "Update Stringline."
        )
    return version


def read_metadata(group: Path) -> bytes:
    """Returns the `zarr.json` of a store or an episode.

    Raises:
        FileNotFoundError, NotADirectoryError: It does not exist.
        DamagedError: It is a symbolic link, or larger than `MOST_METADATA_BYTES`.
    """
    path = f"{group}/zarr.json"
    try:
        data = read_file(path, MOST_METADATA_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedError(f"{path} is a symbolic link; stores have none.") from error
        raise
    if len(data) > MOST_METADATA_BYTES:
        raise DamagedError(f"{path} has more than the allowed {MOST_METADATA_BYTES} bytes.")
    return data


def cut_attribute(data: bytes, name: str) -> tuple[bytes, bytes]:
    """Cuts the mapping that is the value of an attribute out of a checksummed `zarr.json`.

    Returns the file with `null` in the place of the mapping, and the mapping, which is empty if
    there is none. To parse only what is needed takes a fraction of the time. The indentation tells
    where a mapping ends: its lines are deeper, and text in quotes has no line breaks.
    """
    before = b'\n    "%s": ' % name.encode()
    start = data.find(before) + len(before)
    end = data.find(_ENDS, start) + len(_ENDS)
    if start < len(before) or end < len(_ENDS) or not data.startswith(_BEFORE):
        return data, b""
    return b"".join((data[:start], b"null", data[end:])), data[start:end]


def read_group(
    data: bytes, where: str, key: str, parsed: bytes | None = None
) -> tuple[dict[str, Any], int]:
    """Returns the attributes and the version of a store or an episode from its `zarr.json`.

    `where` is its name in messages, `key` the attribute with the version, and `parsed` the file
    without the values that `cut_attribute` has cut out.

    Raises:
        DamagedError: The file has changed since it was written.
        ValueError: The version is newer than this code, or missing.
    """
    try:
        attributes = json.loads((data if parsed is None else parsed).decode())["attributes"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(
            f"{where} is damaged: its zarr.json cannot be read ({error!r})."
        ) from error
    if not isinstance(attributes, dict):
        raise DamagedError(f"{where} is damaged: its zarr.json has no attributes.")
    version = check_version(where, attributes.get(key))
    if (version >= FIRST_CHECKSUMMED or CHECKSUM_KEY in attributes) and not checksum_matches(data):
        raise DamagedError(f"{where} is damaged: the checksum of its zarr.json does not match.")
    return attributes, version


def _checksum(data: bytes) -> bytes:
    start = zlib.crc32(_EMPTY.encode(), zlib.crc32(data[: len(_BEFORE)]))
    return b"%08x" % zlib.crc32(memoryview(data)[_END:], start)
