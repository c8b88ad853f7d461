"""Drawing works without a screen, is exact, and says what to install where it cannot work."""

import os
import subprocess
import sys

import mujoco
import numpy as np
import pytest
from dm_control import mjcf

from stringline.sim.rendering import Renderer, intrinsics, set_flat_rendering


def scene() -> mujoco.MjModel:
    """A camera one metre above a floor with a box of 20 cm, and a wall out of range beside it."""
    root = mjcf.RootElement()
    set_flat_rendering(root, largest_picture=64)
    root.worldbody.add("light", directional=True, dir=(0, 0, -1), castshadow=False)
    root.worldbody.add("camera", name="down", pos=(0, 0, 1), fovy=90)
    root.worldbody.add("camera", name="up", pos=(0, 0, 1), xyaxes=(1, 0, 0, 0, -1, 0), fovy=90)
    root.worldbody.add("geom", type="plane", size=(5, 5, 1), rgba=(1, 0, 0, 1))
    root.worldbody.add("geom", type="box", pos=(0.25, 0.25, 0.1), size=(0.1, 0.1, 0.1), rgba=(0, 0, 1, 1))
    root.worldbody.add("geom", type="box", pos=(0, 0, 4.5), size=(5, 5, 0.1), rgba=(0, 1, 0, 1))
    return mujoco.MjModel.from_xml_string(root.to_xml_string())


def test_depth_is_along_the_optical_axis_and_zero_out_of_range() -> None:
    model = scene()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    renderer = Renderer(model, 64, 64)
    renderer.update(data)
    rgb, depth = renderer.picture(model.camera("down").id)
    assert (depth[40:, :24] == 1000).all()
    assert depth[20, 44] == 800  # The box: right of the middle and above it, as x and y are positive.
    assert rgb[20, 44].argmax() == 2
    assert rgb[60, 5].argmax() == 0
    assert (renderer.picture(model.camera("up").id)[1] == 0).all()
    renderer.close()


def test_intrinsics_put_the_principal_point_in_the_middle() -> None:
    matrix = intrinsics(48, 64, 90.0)
    np.testing.assert_allclose(matrix, [[24, 0, 32], [0, 24, 24], [0, 0, 1]], rtol=1e-6)


def test_pictures_beyond_the_buffer_are_refused() -> None:
    with pytest.raises(ValueError, match="A picture of 128x32 was asked for; allowed: 1x1 to 64x64"):
        Renderer(scene(), 128, 32)


def test_a_missing_graphics_driver_is_explained() -> None:
    code = """
import os
from stringline.sim.rendering import open_graphics
os.environ["MUJOCO_EGL_DEVICE_ID"] = "99"
open_graphics(8, 8)
"""
    headless = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")}
    headless["PYTHONPATH"] = ".src"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=headless, check=False)
    assert done.returncode == 1
    answer = done.stderr.splitlines()[-1]
    assert "No OpenGL for drawing pictures" in answer
    assert "apt install libegl1" in answer
    assert "MUJOCO_GL=egl" in answer
