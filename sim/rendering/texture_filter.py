"""The filter of textures: one mipmap level per pixel, which costs less than MuJoCo's two."""

from collections.abc import Iterable

import mujoco


def use_nearest_mipmap(
    model: mujoco.MjModel, context: mujoco.MjrContext, textures: Iterable[int]
) -> None:
    """Makes textures, by their numbers in the model, take the nearest level of their mipmap.

    MuJoCo interpolates between two levels, in software a tenth of the time of a textured image. An
    upload of a texture sets MuJoCo's filter again. The OpenGL context must be current.
    """
    # PyOpenGL takes the platform of the context at its import.
    from OpenGL import GL

    for number in textures:
        flat = model.tex_type[number] == mujoco.mjtTexture.mjTEXTURE_2D.value
        kind = GL.GL_TEXTURE_2D if flat else GL.GL_TEXTURE_CUBE_MAP
        GL.glBindTexture(kind, int(context.texture[number]))
        GL.glTexParameteri(kind, GL.GL_TEXTURE_MIN_FILTER, GL.GL_LINEAR_MIPMAP_NEAREST)
        GL.glBindTexture(kind, 0)
