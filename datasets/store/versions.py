"""Versions of the store's format: which are read, what the older ones lack, and what is answered to a newer one.

Version 1 (until November 2026) had no checksums of metadata. Version 2 seals every group's
`zarr.json`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from stringline.datasets.store.checksummed_metadata import SEAL, is_sealed, read_attributes

FORMAT_VERSION = 2
FIRST_SEALED = 2
ROOT_KEY = "stringline_store"
EPISODE_KEY = "stringline_episode"

Attributes = dict[str, Any]


class DamagedError(ValueError):
    """Something is no longer what was written."""


def _sealed(attributes: Attributes) -> Attributes:
    """1 to 2: the file around the attributes changed, they did not."""
    return attributes


# From each older version to the next.
STEPS: Mapping[int, Callable[[Attributes], Attributes]] = {1: _sealed}


def check_version(where: str, version: object) -> int:
    """Returns a version that this code reads.

    Raises:
        ValueError: The version is newer than this code, or no version at all.
    """
    if type(version) is not int or version < 1:
        raise ValueError(f"{where} was not written by Stringline: it names no format version.")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{where} has format version {version}; this Stringline reads up to {FORMAT_VERSION}. "
            f"Update Stringline."
        )
    return version


def read_group(data: bytes, where: str, key: str) -> tuple[Attributes, int]:
    """Reads the `zarr.json` of a store or an episode.

    Args:
        data: The file.
        where: What it belongs to, as a reader would say it.
        key: The attribute that names the version.

    Returns:
        The attributes as the present version has them, and the version that wrote them.

    Raises:
        DamagedError: It is not what was written.
        ValueError: A newer version wrote it, or somebody else.
    """
    try:
        attributes = read_attributes(data)
    except ValueError as error:
        raise DamagedError(f"{where} is damaged: {error}.") from error
    version = check_version(where, attributes.get(key))
    if (version >= FIRST_SEALED or SEAL in attributes) and not is_sealed(data):
        raise DamagedError(
            f"{where} is damaged: its zarr.json is not as it was written (checksum)."
        )
    for step in range(version, FORMAT_VERSION):
        attributes = STEPS[step](attributes)
    return attributes, version
