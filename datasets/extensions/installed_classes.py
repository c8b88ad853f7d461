"""Short names of classes of installed packages, by entry points."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points


@cache
def installed_classes(kind: str) -> Mapping[str, str]:
    """Returns the names of the entry points `stringline.<kind>` and their `module:Class`.

    No package is imported. If two packages have the same name, that of the package installed later
    on Python's path is not reachable by it.
    """
    found: dict[str, str] = {}
    for entry in entry_points(group=f"stringline.{kind}"):
        found.setdefault(entry.name, f"{entry.module}:{entry.attr}")
    return found
