"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Returns the version of Stringline; `(not installed)` in a checkout that is not installed."""
    try:
        return version("stringline")
    except PackageNotFoundError:
        return "(not installed)"
