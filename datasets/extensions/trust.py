"""Classes of other packages by name, `module:Class`, and the packages whose code may run.

Installed packages give their classes short names by entry points.

The user consents to a package once, by `trust=PACKAGE` on a command line. The consent is kept in a
file, and commands pass it on to their processes in an environment variable. The unit is the
top-level package or module: consent to `a` does not include `ab`.

A class that the user names, on the command line or in a YAML file of their own, is trusted for this
command. Packages in `trust=` are trusted from then on. A checkpoint adds nothing to either.
"""

import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, util
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import yaml

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.files.atomic import exclusive, write_file
from stringline.datasets.files.limits import read_yaml


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


logger = logging.getLogger(__name__)

ENVIRONMENT = "STRINGLINE_TRUST"
"""Environment variable with trusted packages, separated by commas."""


class UntrustedPackageError(ValueError):
    """A class of a package to which the user has not consented."""


@dataclass(frozen=True)
class Trust:
    """The consent that applies to the classes which a file names.

    Attributes:
        source: What names the classes, for messages, such as the path of a checkpoint.
        packages: Trusted packages, besides those of the file and of the environment.
    """

    source: str = "The configuration"
    packages: frozenset[str] = field(default_factory=frozenset)

    def check(self, name: ClassName) -> None:
        """Checks the consent to run the code of a class; imports nothing.

        Raises:
            UntrustedPackageError: The user has not consented.
            ValueError: The file of trusted packages is damaged or unsafe.
        """
        package = name.package
        if package in self.packages or package in passed_on() or package in remembered():
            return
        raise UntrustedPackageError(
            f"{self.source} needs {name} of the package {package!r}, which is not trusted. Trusted "
            f"packages run their code on this machine, with your rights. If you trust it, add "
            f"trust={package} to the command once; {trust_file()} keeps it. In Python: "
            f"trust=({package!r},)."
        )

    def load(self, text: str, base: type, kind: str = "class") -> type:
        """Imports the class `module:Class`, if its package is trusted.

        Raises:
            ValueError: See `ClassName.parse`, `check` and `import_class`.
        """
        name = ClassName.parse(text, kind)
        self.check(name)
        return import_class(name, base, kind)


def trust_file() -> Path:
    """Returns the path of the file with the trusted packages of this user."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    if not folder.is_absolute():
        folder = Path.home() / ".config"
    return folder / "stringline" / "trusted.yaml"


def passed_on() -> frozenset[str]:
    """Returns the trusted packages of the environment."""
    return frozenset(filter(None, os.environ.get(ENVIRONMENT, "").split(",")))


def remembered() -> tuple[str, ...]:
    """Returns the packages of `trust_file`, in its order.

    Raises:
        ValueError: Other users can change the file, or it is not a list of packages.
    """
    file = trust_file()
    if not file.exists():
        return ()
    _check_owner(file)
    found = read_yaml("The list of trusted packages", file) or []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(
            f"The list of trusted packages {file} is damaged; allowed: a YAML list of names, such "
            "as [my_package]. Correct or remove it."
        )
    return tuple(found)


def remember(packages: Iterable[str]) -> None:
    """Adds packages to `trust_file`.

    Raises:
        ValueError: A name is not that of an installed package, or the file is damaged or unsafe.
    """
    for package in (chosen := list(packages)):
        check_package(package)
        check_installed(package)
    if not set(chosen) - set(remembered()):
        return
    file = trust_file()
    if not file.parent.exists():
        _make_private(file.parent)
    with exclusive(file.parent):
        known = remembered()
        new = sorted(set(chosen) - set(known))
        write_file(file, yaml.safe_dump([*known, *new]).encode())
    logger.info("Checkpoints may run the code of %s from now on: %s.", ", ".join(new), file)


def _make_private(folder: Path) -> None:
    """Makes a folder, and those above it, that only the user can change."""
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)  # Another process may make it meanwhile.


def _check_owner(file: Path) -> None:
    """Checks that nobody else can change or replace a file, as OpenSSH checks its files.

    The file, what it links to, and all folders above both belong to the user or to root and cannot
    be written by a group or by others, up to the home folder or the root. A sticky folder, such as
    /tmp, is accepted above them: others can add files to it, but not replace these.
    """
    for path in dict.fromkeys([*_up_from(file.absolute()), *_up_from(file.resolve())]):
        status = path.stat()
        shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or (shared and not sticky):
            raise ValueError(
                f"The list of trusted packages {file} has no effect, because other users can "
                f"change {path}. Correct its owner and its permissions, for example by chmod go-w."
            )


def _up_from(file: Path) -> list[Path]:
    """Returns a file and the folders above it, up to the home folder or the root."""
    above = [file, *file.parents]
    home = Path.home().resolve()
    return above[: above.index(home) + 1] if home in above else above


OPTION = "trust"


def consented(settings: Mapping[str, Any]) -> str:
    """Keeps the packages of the option `trust`, and returns all that the command may run.

    Args:
        settings: The composed configuration as plain data.

    Returns:
        The value of the environment variable `stringline.datasets.extensions.trust.ENVIRONMENT`.

    Raises:
        ValueError: A package or class has an invalid name or is not installed, or the file of
            trusted packages cannot be changed.
    """
    remember(named_packages(settings.get(OPTION)))
    named = {ClassName.parse(target).package for target in _targets(settings)}
    return ",".join(sorted(named | passed_on() | set(named_packages(settings.get(OPTION)))))


def named_packages(option: object) -> tuple[str, ...]:
    """Returns the packages in a value of the option `trust`: none, one name, or a list."""
    if isinstance(option, Sequence) and not isinstance(option, str):
        return tuple(str(package) for package in option)
    return () if option is None else (str(option),)


def packages_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """Returns the packages in `trust=` of a command line that is not parsed yet."""
    values = [text[len(OPTION) + 1 :] for text in arguments if text.startswith(f"{OPTION}=")]
    return tuple(name.strip() for value in values for name in value.strip("[]").split(",") if name)


def _targets(node: object) -> Iterator[str]:
    """Yields the classes of other packages that plain data names as `_target_`."""
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str) and is_class_name(target):
            yield target
        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)
