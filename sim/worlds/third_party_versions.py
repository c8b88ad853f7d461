"""Looks whether somebody else's simulation is there, in the version that its adapter was written for."""

from importlib import metadata, util


def require(package: str, module: str, version: str, how: str) -> None:
    """Does nothing if a package is there in that version, or if its module is there as a bare folder without one.

    Args:
        package: Its name for pip.
        module: Its name for Python.
        version: The one that works.
        how: What to do to have it, a sentence.

    Raises:
        ValueError: It is not installed, or in another version.
    """
    if util.find_spec(module) is None:
        raise ValueError(f"{package} is not installed. {how}")
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:  # A folder on Python's path.
        return
    if found != version:
        raise ValueError(
            f"{package} {found} is installed; this adapter was written for {version}. {how}"
        )
