"""Imports of optional libraries."""

import importlib
from types import ModuleType


def optional_library(
    module: str, *, package: str | None = None, extra: str = "formats"
) -> ModuleType:
    """Imports a library; if it is missing, the error names the package and the extra of Stringline.

    `package` is the name of the package if it differs from that of the module.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = package or module.partition(".")[0]
        raise ValueError(
            f'This needs {name}, which is not installed. Run: pip install "stringline[{extra}]"'
        ) from error
