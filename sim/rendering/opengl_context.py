"""OpenGL contexts without a screen, and instructions for machines without OpenGL.

OpenGL is initialised with the first image, in the process that draws it. It does not survive a
fork: the driver's threads stay in the parent, and the child would wait for them without end, so a
forked child gets an error. This module does not import MuJoCo, so that it can explain why the
import of MuJoCo fails.
"""

import importlib
import os
import platform
from collections.abc import Callable
from typing import Protocol

NO_GRAPHICS = (
    "OpenGL, which draws the images, is not available ({reason}). On a machine without a screen "
    "install EGL with Mesa (Debian, Ubuntu: `apt install libegl1 libgl1 libgl1-mesa-dri`) and set "
    "MUJOCO_GL=egl; on a desktop unset MUJOCO_GL. Tasks run without OpenGL if cameras is empty."
)
FORKED = (
    "This process was forked after images had been drawn, and OpenGL does not survive a fork. "
    "Start processes with spawn: multiprocessing.get_context('spawn'), AsyncVectorEnv(..., "
    "context='spawn')."
)


class GraphicsContext(Protocol):
    """The interface of the OpenGL contexts of MuJoCo's back ends."""

    def make_current(self) -> None:
        """Makes the context the current one of this thread."""

    def free(self) -> None:
        """Frees the context."""


class _Owner:
    """The process in which OpenGL was first used: this one or an ancestor."""

    process: int | None = None


def import_bindings() -> None:
    """Imports MuJoCo's bindings, which load the driver that MUJOCO_GL names.

    Raises:
        RuntimeError: The driver is missing; the message says what to install.
    """
    try:
        importlib.import_module("dm_control.mjcf")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) or not os.environ.get("MUJOCO_GL"):
            raise
        raise _no_graphics(error) from error


def open_graphics(width: int, height: int) -> GraphicsContext:
    """Makes an OpenGL context: the one that MUJOCO_GL names, by default EGL if there is no screen.

    Raises:
        RuntimeError: OpenGL is not available; or the process was forked after an image was drawn.
    """
    if forked():
        raise RuntimeError(FORKED)
    _Owner.process = os.getpid()
    try:
        context = _back_end()(width, height)
        context.make_current()
    except Exception as error:  # Each back end fails differently, from AttributeError to OSError.
        raise _no_graphics(error) from error
    return context


def forked() -> bool:
    """Returns whether OpenGL was used before this process was forked, so that it cannot be used."""
    return _Owner.process not in (None, os.getpid())


def use_egl_in_dm_control() -> None:
    """Makes dm_control render by EGL if MUJOCO_GL is not set and there is no screen.

    dm_control would choose GLFW, which needs a screen. Our own images do not use dm_control's
    renderer; those of third-party worlds do. dm_control 1.0 chooses at its import, which is over;
    so its choice is replaced.
    """
    if os.environ.get("MUJOCO_GL") or _screen():
        return
    from dm_control import _render

    _render.Renderer = _render._import_egl()


def _screen() -> bool:
    return bool(
        os.environ.get("DISPLAY")
        or os.environ.get("WAYLAND_DISPLAY")
        or platform.system() != "Linux"
    )


def _no_graphics(error: Exception) -> RuntimeError:
    return RuntimeError(NO_GRAPHICS.format(reason=f"{type(error).__name__}: {error}"))


def _back_end() -> Callable[[int, int], GraphicsContext]:
    if os.environ.get("MUJOCO_GL") or _screen():
        import mujoco

        context: Callable[[int, int], GraphicsContext] = mujoco.GLContext
        return context
    from mujoco.egl import GLContext  # The import fails where EGL is missing.

    headless: Callable[[int, int], GraphicsContext] = GLContext
    return headless
