"""OpenGL that is not available ends a command in one line with the way out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stringline.datasets.command.application import USER_ERROR
from stringline.datasets.command.installation import graphics_error

COLLECT = """
import sys
from stringline.datasets.command.entry_points import collect
sys.argv = ["stringline-collect", "task=hand_over_banana", "episodes=1", "output=out"]
collect()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="MUJOCO_GL names drivers of Linux")
@pytest.mark.parametrize(
    ("variables", "way_out"),
    [
        ({"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "99"}, "MUJOCO_EGL_DEVICE_ID is '99': unset"),
        ({"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "x"}, "MUJOCO_EGL_DEVICE_ID is 'x': unset"),
        ({"MUJOCO_EGL_DEVICE_ID": "99"}, "MUJOCO_EGL_DEVICE_ID is '99': unset"),
        ({"MUJOCO_GL": "glfw"}, "MUJOCO_GL is 'glfw', which needs a screen: on a desktop unset it"),
        ({"MUJOCO_GL": "wayland"}, "MUJOCO_GL is 'wayland'; allowed: egl, osmesa, glfw. Unset it"),
        ({"MUJOCO_GL": "off"}, "MUJOCO_GL is 'off'; allowed: egl, osmesa, glfw. Unset it"),
        (
            {"MUJOCO_GL": "egl", "__EGL_VENDOR_LIBRARY_FILENAMES": "/dev/null"},
            "MUJOCO_GL is 'egl': install EGL with Mesa",
        ),
    ],
    ids=str,
)
def test_a_command_ends_in_one_line(
    variables: dict[str, str], way_out: str, tmp_path: Path
) -> None:
    """Whether the driver fails on import or with the first image, in this process or a worker."""
    names = ("MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "DISPLAY", "WAYLAND_DISPLAY")
    bare = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", COLLECT],
        cwd=tmp_path,
        env=bare | {"PYTHONPATH": str(Path(".src").absolute())} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == USER_ERROR, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "stringline-collect: OpenGL, which draws the images, is not available (" in last
    assert way_out in last


def test_other_errors_are_no_errors_of_drivers() -> None:
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("MUJOCO_GL")
    assert graphics_error(caught.value) is None
