"""The `zarr.json` of a group, sealed: a checksum of the file inside the file, so that not even a space can change unnoticed.

Any zarr reads such a file; the seal is an attribute like others. It stands at a fixed place, and
covers all bytes of the file with eight zeros in its own place. The metadata of arrays needs no
seal: what it must say follows from the group's attributes.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from stringline.datasets.store.zarr_layout import group_metadata

SEAL = "stringline_checksum"
_BEFORE = b'{\n  "attributes": {\n    "' + SEAL.encode() + b'": "'
_EMPTY = "00000000"
_END = len(_BEFORE) + len(_EMPTY)


def sealed_group(attributes: Mapping[str, Any]) -> bytes:
    """Returns the `zarr.json` of a group with these attributes and their seal.

    Raises:
        ValueError: The attributes are no JSON (a NaN, an array).
    """
    data = group_metadata(
        {SEAL: _EMPTY, **{key: value for key, value in attributes.items() if key != SEAL}}
    )
    return b"".join((_BEFORE, _checksum(data), data[_END:]))


def is_sealed(data: bytes) -> bool:
    """Says whether a `zarr.json` holds the checksum of itself."""
    return data[: len(_BEFORE)] == _BEFORE and data[len(_BEFORE) : _END] == _checksum(data)


def read_attributes(data: bytes) -> dict[str, Any]:
    """Returns the attributes of a group.

    Raises:
        ValueError: It is no JSON, or not that of a group.
    """
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
