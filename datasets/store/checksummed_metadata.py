"""The `zarr.json` of a group with a checksum of itself, which detects any changed byte.

The checksum is an attribute, so that every zarr reads the file. It stands at a fixed position and
covers all bytes of the file, with eight zeros in its own place. The metadata of arrays follows from
the attributes of the group and needs no checksum.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from stringline.datasets.store.zarr_layout import group_metadata

CHECKSUM_KEY = "stringline_checksum"
_BEFORE = b'{\n  "attributes": {\n    "' + CHECKSUM_KEY.encode() + b'": "'
_EMPTY = "00000000"
_END = len(_BEFORE) + len(_EMPTY)


def checksummed_group(attributes: Mapping[str, Any]) -> bytes:
    """Returns the `zarr.json` of a group with these attributes and the checksum."""
    # The first key keeps its position when the attributes contain an old checksum.
    data = group_metadata({CHECKSUM_KEY: _EMPTY} | dict(attributes) | {CHECKSUM_KEY: _EMPTY})
    return b"".join((_BEFORE, _checksum(data), data[_END:]))


def checksum_matches(data: bytes) -> bool:
    """Returns whether a `zarr.json` contains its own checksum."""
    return data[: len(_BEFORE)] == _BEFORE and data[len(_BEFORE) : _END] == _checksum(data)


def read_attributes(data: bytes) -> dict[str, Any]:
    """Returns the attributes of a group."""
    try:
        attributes = json.loads(data.decode())["attributes"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its zarr.json cannot be read ({error!r})") from error
    if not isinstance(attributes, dict):
        raise ValueError("its zarr.json has no attributes")
    return attributes


def _checksum(data: bytes) -> bytes:
    start = zlib.crc32(_EMPTY.encode(), zlib.crc32(data[: len(_BEFORE)]))
    return b"%08x" % zlib.crc32(memoryview(data)[_END:], start)
