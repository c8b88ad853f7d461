"""Imports of optional libraries."""

import importlib
from types import ModuleType


def optional_library(
    module: str, *, package: str | None = None, extra: str = "formats"
) -> ModuleType:
    """Imports a library of an extra.

    Args:
        module: Name of the module.
        package: Name of the package, if it differs.
        extra: The extra of Stringline that installs the package.

    Raises:
        ValueError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = package or module.partition(".")[0]
        raise ValueError(
            f'This needs {name}, which is not installed. Run: pip install "stringline[{extra}]"'
        ) from error
