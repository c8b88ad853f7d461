"""Images need no screen and are exact; the error without OpenGL names the packages to install."""

import os
import subprocess
import sys
from typing import Any

import mujoco
import numpy as np
import pytest
from dm_control import mjcf

from stringline.sim.rendering.rendering import RENDERINGS, Renderer, intrinsics, set_flat_rendering


def scene() -> mujoco.MjModel:
    """A camera one metre above a floor with a box of 20 cm, and a wall out of range beside it."""
    root = mjcf.RootElement()
    set_flat_rendering(root)
    root.worldbody.add("light", directional=True, dir=(1.2, 0, -1), castshadow=False)
    root.worldbody.add("camera", name="down", pos=(0, 0, 1), fovy=90)
    root.worldbody.add("camera", name="up", pos=(0, 0, 1), xyaxes=(1, 0, 0, 0, -1, 0), fovy=90)
    root.worldbody.add("geom", type="plane", size=(5, 5, 1), rgba=(1, 0, 0, 1))
    root.worldbody.add(
        "geom", type="box", pos=(0.25, 0.25, 0.1), size=(0.1, 0.1, 0.1), rgba=(0, 0, 1, 1)
    )
    root.worldbody.add("geom", type="box", pos=(0, 0, 4.5), size=(5, 5, 0.1), rgba=(0, 1, 0, 1))
    return mujoco.MjModel.from_xml_string(root.to_xml_string())


def test_depth_is_along_the_optical_axis_and_zero_out_of_range() -> None:
    model = scene()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    renderer = Renderer(model, 64, 64)
    renderer.update(data)
    rgb, depth = renderer.image(model.camera("down").id)
    assert (depth[40:, :24] == 1000).all()
    assert (
        depth[20, 44] == 800
    )  # The box: right of the middle and above it, as x and y are positive.
    assert rgb[20, 44].argmax() == 2
    assert rgb[60, 5].argmax() == 0
    assert (renderer.image(model.camera("up").id)[1] == 0).all()
    renderer.close()


def test_intrinsics_put_the_principal_point_in_the_middle() -> None:
    matrix = intrinsics(48, 64, 90.0)
    np.testing.assert_allclose(matrix, [[24, 0, 32], [0, 24, 24], [0, 0, 1]], rtol=1e-6)


def test_images_beyond_the_buffer_are_refused() -> None:
    with pytest.raises(ValueError, match="images is 2048x32; allowed: 1x1 to 1024x1024"):
        Renderer(scene(), 2048, 32)


def seen_from_above(size: int = 64, **arguments: Any) -> Renderer:
    """Returns a renderer of the scene that is ready to draw."""
    model = scene()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    renderer = Renderer(model, size, size, **arguments)
    renderer.update(data)
    return renderer


def test_segmentation_shows_the_numbers_of_the_shapes() -> None:
    renderer = seen_from_above(segments=np.array([7, 255, 1], dtype=np.uint8))
    shown = renderer.segmentation(0)
    depth = renderer.image(0)[1]
    assert shown.dtype == np.uint8
    np.testing.assert_array_equal(shown == 255, depth < 900)  # The box,
    np.testing.assert_array_equal(shown == 7, depth > 900)  # and the floor.
    assert (renderer.segmentation(1) == 1).all()
    renderer.close()


def test_only_casters_cast_shadows_and_only_in_pretty_images() -> None:
    """The light comes from the left, so that the shadow is to the right of the box."""
    images, floor = {}, np.zeros((64, 64), dtype=bool)
    for name, arguments in {
        "fast": {},
        "none": {"rendering": "pretty", "casters": np.zeros(3, dtype=bool)},
        "box": {"rendering": "pretty", "casters": np.array([False, True, False])},
    }.items():
        renderer = seen_from_above(**arguments)
        images[name], depth = renderer.image(0)
        floor = depth == 1000
        renderer.close()
    brightness = {name: image.astype(int).sum(axis=2) for name, image in images.items()}
    assert np.abs(brightness["none"] - brightness["fast"])[floor].mean() < 3
    darker = floor & (brightness["box"] < brightness["none"] - 30)
    assert 20 < darker.sum() < 400
    columns = np.nonzero(darker)[1]
    assert columns.min() > 40  # To the right of the box, whose left side is in column 37.


def test_pretty_images_are_the_mean_of_four_samples() -> None:
    """At the box's edges colours are between those of box and floor, in pretty images only."""
    mixed = {}
    for rendering in RENDERINGS:
        renderer = seen_from_above(60, rendering=rendering, casters=np.zeros(3, dtype=bool))
        red, _, blue = np.moveaxis(renderer.image(0)[0].astype(int), -1, 0)
        mixed[rendering] = int(((red > 20) & (blue > 20)).sum())
        renderer.close()
    assert mixed["fast"] == 0
    assert mixed["pretty"] > 10


def test_drawing_in_a_forked_process_is_refused() -> None:
    code = """
import os
from stringline.sim.rendering.opengl_context import open_graphics
from tests_scene import seen_from_above
renderer = seen_from_above()
renderer.image(0)
if os.fork() == 0:
    for attempt in (lambda: renderer.update(None), lambda: open_graphics(8, 8)):
        try:
            attempt()
        except RuntimeError as error:
            print(error, flush=True)
    renderer.close()
    os._exit(0)
os.wait()
renderer.image(0)
renderer.close()
"""
    here = os.path.dirname(__file__)
    code = code.replace(
        "from tests_scene", f"import sys; sys.path.insert(0, {here!r}); from test_rendering"
    )
    environment = os.environ | {"PYTHONPATH": ".src"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
        timeout=60,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == 2
    for answer in answers:
        assert answer.startswith("This process was forked after images had been drawn")
        assert "AsyncVectorEnv(..., context='spawn')" in answer


def test_a_missing_graphics_driver_is_explained() -> None:
    code = """
import os
from stringline.sim.rendering.opengl_context import open_graphics
os.environ["MUJOCO_EGL_DEVICE_ID"] = "99"
open_graphics(8, 8)
"""
    headless = {
        key: value
        for key, value in os.environ.items()
        if key not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    }
    headless["PYTHONPATH"] = ".src"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=headless, check=False
    )
    assert done.returncode == 1
    answer = done.stderr.splitlines()[-1]
    assert "OpenGL, which draws the images, is not available" in answer
    assert "MUJOCO_EGL_DEVICE_ID is '99': unset it, or set the number of an EGL device" in answer
