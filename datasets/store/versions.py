"""Versions of the store format.

Version 1 (until November 2026) had no checksums of metadata; its attributes are those of version 2.
Version 2 adds a checksum to the `zarr.json` of every group.
"""

from typing import Any

from stringline.datasets.store.checksummed_metadata import (
    CHECKSUM_KEY,
    checksum_matches,
    read_attributes,
)

FORMAT_VERSION = 2
FIRST_CHECKSUMMED = 2
ROOT_KEY = "stringline_store"
EPISODE_KEY = "stringline_episode"

Attributes = dict[str, Any]


class DamagedError(ValueError):
    """The bytes of a store or an episode have changed since they were written."""


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


def read_group(data: bytes, where: str, key: str) -> tuple[Attributes, int]:
    """Reads the `zarr.json` of a store or an episode.

    Args:
        data: The file.
        where: Name of the store or episode in messages.
        key: The attribute with the version.

    Returns:
        The attributes and the version.

    Raises:
        DamagedError: The file has changed since it was written.
        ValueError: The version is newer than this code, or missing.
    """
    try:
        attributes = read_attributes(data)
    except ValueError as error:
        raise DamagedError(f"{where} is damaged: {error}.") from error
    version = check_version(where, attributes.get(key))
    if (version >= FIRST_CHECKSUMMED or CHECKSUM_KEY in attributes) and not checksum_matches(data):
        raise DamagedError(f"{where} is damaged: the checksum of its zarr.json does not match.")
    return attributes, version
