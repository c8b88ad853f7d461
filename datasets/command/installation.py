"""What is installed: the version of this package, and the message for a library that is missing.

The message names the package of the library and how to install it.
"""

import re
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec


def installed_version() -> str:
    """Returns the version of Stringline; `(not installed)` in a checkout that is not installed."""
    try:
        return version("stringline")
    except PackageNotFoundError:
        return "(not installed)"


# Packages whose names differ from those of their modules.
PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "hydra": "hydra-core",
    "yaml": "pyyaml",
}
_OF_DEVELOPERS = ("dev", "docs")


def missing_package(error: ImportError) -> str | None:
    """Returns the missing package and the command that installs it.

    None if the import failed for another reason. A package of the default installation is installed
    by `pip install stringline`, one of an extra by `pip install "stringline[extra]"`. For any other
    module, such as one of the user, no command is named.
    """
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module in ("", "stringline"):
        return None
    if _is_installed(module):  # It lacks a part, so it has another version.
        return None
    package = PACKAGES.get(module, module).replace("_", "-")
    command = _installation(package)
    if command is None:
        return f"the module {module!r}, which is not installed"
    return f"the package {package!r}, which is not installed: {command}"


def _is_installed(module: str) -> bool:
    """Returns whether a top-level module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _installation(package: str) -> str | None:
    """Returns the command that installs a package; None if Stringline does not require it."""
    try:
        lines = requires("stringline") or []
    except PackageNotFoundError:  # A checkout that is not installed.
        return "pip install stringline"
    needed = [line for line in lines if re.match(rf"{re.escape(package)}(?![\w.-])", line)]
    if any("extra ==" not in line for line in needed):
        return "pip install stringline"
    extras = [extra for line in needed for extra in re.findall(r"extra == ['\"]([\w-]+)", line)]
    named = [extra for extra in extras if extra not in _OF_DEVELOPERS]
    return f'pip install "stringline[{named[0]}]"' if named else None
