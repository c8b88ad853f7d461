"""The consent of a command line to the code of other packages.

A class that the user names, on the command line or in a YAML file of their own, is trusted for this
command. Packages in `trust=` are trusted from then on. A checkpoint adds nothing to either.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stringline.datasets.extensions.class_names import ClassName, is_class_name
from stringline.datasets.extensions.trust import passed_on, remember

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
