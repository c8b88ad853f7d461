"""Packages whose code may run when a checkpoint names their classes.

The user consents to a package once, by `trust=PACKAGE` on a command line. The consent is kept in a
file, and commands pass it on to their processes in an environment variable. The unit is the
top-level package or module: consent to `a` does not include `ab`.

A class that the user names, on the command line or in a YAML file of their own, is trusted for this
command. Packages in `trust=` are trusted from then on. A checkpoint adds nothing to either.
"""

import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stringline.datasets.extensions.class_names import (
    ClassName,
    check_installed,
    check_package,
    import_class,
    is_class_name,
)
from stringline.datasets.files.atomic import exclusive, write_file
from stringline.datasets.files.yaml_file import read_yaml

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
