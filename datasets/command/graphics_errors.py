"""The message for OpenGL that is not available: which variable asked for what, and the way out.

MuJoCo and dm_control load the driver that `MUJOCO_GL` names while they are imported, so the errors
of drivers occur in imports as well, with a type and a text for each driver.
"""

import os
import traceback

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
