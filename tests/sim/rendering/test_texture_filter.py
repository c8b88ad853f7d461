"""Textures of looks take one level of their mipmap, also after the upload of new ones."""

from contextlib import closing

import numpy as np
import pytest

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.rendering.rendering import Renderer
from stringline.sim.tasks.task_registry import make_task

LINEAR_MIPMAP_NEAREST = 0x2701  # Of OpenGL.


def filters(renderer: Renderer, textures: tuple[int, ...]) -> set[int]:
    """Returns the filters that OpenGL has for textures of the model, flat ones and cubes."""
    # PyOpenGL takes the platform of the context at its import.
    from OpenGL import GL

    assert renderer._graphics is not None
    renderer._graphics.make_current()
    found = set()
    for number in textures:
        flat = renderer._model.tex_type[number] == 0
        kind = GL.GL_TEXTURE_2D if flat else GL.GL_TEXTURE_CUBE_MAP
        GL.glBindTexture(kind, int(renderer._context.texture[number]))
        found.add(int(GL.glGetTexParameteriv(kind, GL.GL_TEXTURE_MIN_FILTER)))
    return found


@pytest.mark.slow
def test_new_textures_keep_the_filter() -> None:
    with closing(TaskEnvironment(make_task("kuka_pick"), image_size=48)) as world:
        images = []
        for seed, looks in ((0, "textured"), (1, "randomised"), (2, "randomised")):
            world.begin(seed, {"looks": looks})
            images.append(world.observe()["rgb/overhead"])
            renderer = world._cameras._renderer
            assert filters(renderer, renderer._scenery.textures) == {LINEAR_MIPMAP_NEAREST}
        assert not np.array_equal(images[1], images[2])
