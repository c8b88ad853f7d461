"""OpenGL contexts without a screen, and what to do where there is none.

OpenGL is first touched when the first image is asked for, in the process that asks. It does not
survive a fork: the threads that draw stay behind, and the child would wait for them for ever. So a
forked child gets an error instead. This module imports without MuJoCo, so that it can explain why
MuJoCo does not import.
"""

import importlib
import os
import platform
from collections.abc import Callable
from typing import Protocol

NO_GRAPHICS = (
    "No OpenGL for drawing images ({reason}). On a machine without a screen install EGL with Mesa "
    "(Debian, Ubuntu: `apt install libegl1 libgl1 libgl1-mesa-dri`) and set MUJOCO_GL=egl; "
    "on a desktop unset MUJOCO_GL. Without images, tasks still run: ask for no cameras."
)
FORKED = (
    "Images are asked for in a process that was forked after images had been drawn; OpenGL does "
    "not survive a fork. "
    "Start processes with spawn: multiprocessing.get_context('spawn'), AsyncVectorEnv(..., "
    "context='spawn')."
)


class GraphicsContext(Protocol):
    """An OpenGL context, as MuJoCo's back ends offer it."""

    def make_current(self) -> None:
        """Makes it the one that calls of this thread go to."""

    def free(self) -> None:
        """Gives it back."""


class _Owner:
    """The process in which OpenGL was first used, among this one and those that it was forked from."""

    process: int | None = None


def import_bindings() -> None:
    """Imports MuJoCo's bindings; they load the driver that MUJOCO_GL names, and where it is missing they fail in odd ways.

    Raises:
        RuntimeError: It is missing; says what to install.
    """
    try:
        importlib.import_module("dm_control.mjcf")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) or not os.environ.get("MUJOCO_GL"):
            raise
        raise _no_graphics(error) from error


def open_graphics(width: int, height: int) -> GraphicsContext:
    """Makes an OpenGL context: the one that MUJOCO_GL names, EGL where it names none and there is no screen.

    Raises:
        RuntimeError: There is none, and it says what to install; or this process was forked after
            another had drawn.
    """
    if forked():
        raise RuntimeError(FORKED)
    _Owner.process = os.getpid()
    try:
        context = _back_end()(width, height)
        context.make_current()
    except (
        Exception
    ) as error:  # Each back end fails in its own way, from AttributeError to OSError.
        raise _no_graphics(error) from error
    return context


def forked() -> bool:
    """Says whether OpenGL was used before this process was forked off, so that it must not be touched here."""
    return _Owner.process not in (None, os.getpid())


def lead_dm_control() -> None:
    """Has dm_control draw by EGL where MUJOCO_GL names nothing and there is no screen; it would take GLFW, which needs one.

    Our own images need no such thing; worlds of others that draw by dm_control do. It chooses when
    it is imported, which is long over: so its choice (in dm_control 1.0) is replaced.
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
    from mujoco.egl import (
        GLContext,
    )  # Where EGL is missing, its import fails: it must not be a condition of importing this.

    headless: Callable[[int, int], GraphicsContext] = GLContext
    return headless
