"""Names of classes outside this package, `module:Class`, and their import.

Installed packages give their classes short names by entry points.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, util
from importlib.metadata import entry_points
from types import ModuleType
from typing import Self

from stringline.datasets.contract.argument_checks import unknown_name


def is_class_name(text: str) -> bool:
    """Returns whether a name has the form `module:Class` of a class outside this package."""
    return ":" in text


@dataclass(frozen=True)
class ClassName:
    """The name of a class outside this package.

    Attributes:
        module: Full name of the module, such as `my_package.my_module`.
        name: Name of the class in that module.
    """

    module: str
    name: str

    @classmethod
    def parse(cls, text: str, kind: str = "class") -> Self:
        """Reads `module:Class`; imports nothing.

        Raises:
            ValueError: The text has another form, or names a class of Python or of Stringline.
        """
        module, _, name = text.partition(":")
        if not all(_is_part(part) for part in (*module.split("."), name)):
            raise ValueError(
                f"{text!r} is not the name of a {kind}; allowed: public names of Stringline, or "
                "module:Class of yours, such as my_package.my_module:MyClass."
            )
        found = cls(module, name)
        check_package(found.package)
        return found

    @property
    def package(self) -> str:
        """The top-level package or module, which is the unit of trust."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def check_package(package: str) -> None:
    """Checks that a package may contain extensions; imports nothing.

    Raises:
        ValueError: The text is not a name, or names a package of Python or Stringline itself.
    """
    if not _is_part(package):
        raise ValueError(
            f"{package!r} is not the name of a package; allowed: names of top-level packages or "
            "modules, such as my_package."
        )
    if package == "stringline":
        raise ValueError(
            "Classes of Stringline are named stringline.NAME, without a colon, and need no trust. "
            "docs/api.md lists them."
        )
    if package in sys.stdlib_module_names:
        raise ValueError(
            f"{package!r} is part of Python, which defines no policies, encoders, tasks or robots."
        )


def check_installed(package: str, module: str | None = None) -> None:
    """Checks that a top-level package exists, without importing it.

    Raises:
        ValueError: It does not; names `module`, by default the package.
    """
    if package not in sys.modules and util.find_spec(package) is None:
        raise ValueError(
            f"There is no module {module or package!r} on Python's path. If it is in the current "
            "folder, put PYTHONPATH=. before the command; else install it with pip."
        )


def import_class(name: ClassName, base: type = object, kind: str = "class") -> type:
    """Imports a class; the caller has checked that the user trusts its package.

    Raises:
        ValueError: The module or the class does not exist, the module needs another one that is
            missing, or the class is defined elsewhere or not derived from `base`.
    """
    module = _module(name)
    found: object = getattr(module, name.name, None)
    if found is None:
        own = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, base)
            and value.__module__ == name.module
        ]
        raise unknown_name(f"{kind} in {name.module}", name.name, own)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ValueError(f"{name} is not a class derived from {base.__name__}.")
    if found.__module__.partition(".")[0] != name.package:
        raise ValueError(
            f"{name} is defined in {found.__module__}; allowed: classes of {name.package!r} itself."
        )
    return found


def _module(name: ClassName) -> ModuleType:
    check_installed(name.package, name.module)
    try:
        return import_module(name.module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name.module}.".startswith(f"{error.name}."):
            raise ValueError(
                f"There is no module {name.module!r} on Python's path; {error.name!r} is missing."
            ) from error
        raise ValueError(
            f"{name.module} cannot be imported, because it needs a module that is not installed: "
            f"{error.name}."
        ) from error


def _is_part(part: str) -> bool:
    # ASCII, because letters of other alphabets look alike in a message about trust.
    return part.isidentifier() and part.isascii() and not part.startswith("__")


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
