"""Libraries that only some formats need: they are imported when such a format is read or written."""

import importlib
from types import ModuleType


def optional_library(
    module: str, *, package: str | None = None, extra: str = "formats"
) -> ModuleType:
    """Imports a library of an extra.

    Args:
        module: What is imported.
        package: What is installed, where it has another name.
        extra: The extra of this package that brings it.

    Raises:
        ValueError: It is not installed; the message says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = package or module.partition(".")[0]
        raise ValueError(
            f'This needs {name}, which is not installed. Run: pip install "stringline[{extra}]"'
        ) from error
