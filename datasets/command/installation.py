"""What is installed: versions, optional libraries, and messages for what is missing, also OpenGL.

The message for a library names its package and how to install it. MuJoCo and dm_control load the
driver that `MUJOCO_GL` names while they are imported, so the errors of drivers occur in imports as
well, with a type and a text for each driver.
"""

import importlib
import os
import re
import traceback
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from types import ModuleType


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


BACK_END = "MUJOCO_GL"
DEVICE = "MUJOCO_EGL_DEVICE_ID"
_EGL = (
    "install EGL with Mesa (Debian, Ubuntu: `apt install libegl1 libgl1 libgl1-mesa-dri`) and set "
    f"{BACK_END}=egl"
)
_WAYS = {
    "": f"On a machine without a screen {_EGL}",
    "egl": f"{BACK_END} is 'egl': {_EGL}; on a desktop unset it",
    "osmesa": (
        f"{BACK_END} is 'osmesa', which needs the library OSMesa (Debian, Ubuntu: `apt install "
        f"libosmesa6`); or {_EGL}"
    ),
}
# Modules that load drivers.
_LOADERS = (
    "mujoco.rendering",
    "mujoco.gl_context",
    "mujoco.egl",
    "mujoco.glfw",
    "mujoco.osmesa",
    "dm_control._render",
    "OpenGL",
    "glfw",
)


def graphics_error(error: BaseException) -> str | None:
    """Returns the message for an error from the import of a driver; None for other errors."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    if not any(name == each or name.startswith(f"{each}.") for name in names for each in _LOADERS):
        return None
    return no_graphics(error)


def no_graphics(error: BaseException) -> str:
    """Returns the message for an error of a driver, with the way out for the chosen variables."""
    reason = f"{type(error).__name__}: {error}".rstrip(".")
    return (
        f"OpenGL, which draws the images, is not available ({reason}). {_way_out(str(error))}. "
        "Tasks run without OpenGL if cameras is empty."
    )


def _way_out(reason: str) -> str:
    device = os.environ.get(DEVICE)
    if device is not None and (DEVICE in reason or not device.isdecimal()):
        return f"{DEVICE} is {device!r}: unset it, or set the number of an EGL device, from 0"
    chosen = os.environ.get(BACK_END, "").strip().lower()
    if chosen in _WAYS:
        return _WAYS[chosen]
    if chosen == "glfw":
        return (
            f"{BACK_END} is 'glfw', which needs a screen: on a desktop unset it, otherwise {_EGL}"
        )
    return f"{BACK_END} is {chosen!r}; allowed: egl, osmesa, glfw. Unset it, or {_EGL}"
