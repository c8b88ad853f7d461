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
from typing import TYPE_CHECKING, Protocol

from stringline.datasets.command.installation import graphics_error, no_graphics

if TYPE_CHECKING:  # Its import may fail, which this module explains.
    import mujoco

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
        if (message := graphics_error(error)) is None:
            raise
        raise RuntimeError(message) from error


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
        raise RuntimeError(no_graphics(error)) from error
    return context


def drawing_context(
    model: "mujoco.MjModel", font_scale: "mujoco.mjtFontScale"
) -> "mujoco.MjrContext":
    """Returns what MuJoCo draws a model with, in the current OpenGL context of this thread.

    Raises:
        RuntimeError: OpenGL is not available: without a screen GLFW fails only here.
    """
    import mujoco

    try:
        return mujoco.MjrContext(model, font_scale.value)
    except mujoco.FatalError as error:
        raise RuntimeError(no_graphics(error)) from error


def forked() -> bool:
    """Returns whether OpenGL was used before this process was forked, so that it cannot be used."""
    return _Owner.process not in (None, os.getpid())


def use_egl_in_dm_control() -> None:
    """Makes dm_control render by EGL if MUJOCO_GL is not set and there is no screen.

    dm_control would choose GLFW, which needs a screen. Our own images do not use dm_control's
    renderer; those of third-party worlds do. dm_control 1.0 chooses at its import, which is over;
    so its choice is replaced.

    Raises:
        RuntimeError: EGL is not available.
    """
    if os.environ.get("MUJOCO_GL") or _screen():
        return
    from dm_control import _render

    try:
        _render.Renderer = _render._import_egl()
    except Exception as error:
        raise RuntimeError(no_graphics(error)) from error


def _screen() -> bool:
    return bool(
        os.environ.get("DISPLAY")
        or os.environ.get("WAYLAND_DISPLAY")
        or platform.system() != "Linux"
    )


def _back_end() -> Callable[[int, int], GraphicsContext]:
    if os.environ.get("MUJOCO_GL") or _screen():
        import mujoco

        context: Callable[[int, int], GraphicsContext] = mujoco.GLContext
        return context
    from mujoco.egl import GLContext  # The import fails where EGL is missing.

    headless: Callable[[int, int], GraphicsContext] = GLContext
    return headless
