"""What images show beyond the shapes of a model: new textures and soft shadows.

A shadow map costs 2 to 5 times all the rest of an image in software. A soft shadow is the shadow of
an ellipsoid around the shapes of a body, drawn as a flat translucent ellipse on the table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.typing import NDArray

OPACITY = 0.38  # Of the shadow of a body on the table.
BLUR = 0.3  # Growth of a shadow's half lengths per metre above the table.
FADE_M = 0.12  # Height at which a shadow has half of its opacity.
HIGHEST_M = 0.4  # Bodies above cast no shadow that could be seen.
LIFT_M = 0.0004  # Above the table; the thickness is less, and depth has steps of 1 mm.
SMALLEST_M = 0.004

Vectors = NDArray[np.float64]
_ELLIPSOID = mujoco.mjtGeom.mjGEOM_ELLIPSOID.value


@dataclass(frozen=True)
class Caster:
    """A body that casts a shadow, with the box around its shapes in its own frame, metres."""

    body: int
    centre: Vectors
    half: Vectors


@dataclass
class Scenery:
    """Settings of an episode's images; the textures themselves are in the model.

    Attributes:
        textures: Numbers of textures that have changed since `version` grew.
        version: Grows with each change of textures.
        casters: Bodies with soft shadows.
        light: (3,), direction of the light that casts them.
        ground: (x, y, half x, half y, z) of the table top, metres.
    """

    textures: tuple[int, ...] = ()
    version: int = 0
    casters: Sequence[Caster] = ()
    light: Vectors = field(default_factory=lambda: np.array([0.0, 0.0, -1.0]))
    ground: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)

    def add_shadows(self, data: mujoco.MjData, scene: mujoco.MjvScene) -> None:
        """Appends the shadows at the current state to a scene, as far as it has room."""
        for caster in self.casters:
            turn = data.xmat[caster.body].reshape(3, 3)
            middle = data.xpos[caster.body] + turn @ caster.centre
            ellipse = self._ellipse(middle, turn * caster.half)
            if ellipse is not None and scene.ngeom < scene.maxgeom:
                shape = scene.geoms[scene.ngeom]
                mujoco.mjv_initGeom(shape, _ELLIPSOID, *ellipse)
                shape.segid = -1  # It belongs to no segment.
                scene.ngeom += 1

    def _ellipse(
        self, middle: Vectors, spread: Vectors
    ) -> tuple[Vectors, Vectors, Vectors, NDArray[np.float32]] | None:
        """Returns half lengths, place, axes (9,) and colour of the shadow of an ellipsoid.

        An ellipsoid {m + S u: |u| <= 1} has the shadow {P m + P S u} under the projection P along
        the light; its axes are the eigenvectors of P S S' P'.
        """
        x, y, half_x, half_y, top = self.ground
        above = middle[2] - top
        slope = self.light[:2] / self.light[2]  # Metres sideways per metre down.
        place = (*(middle[:2] - slope * above), top + LIFT_M)
        beside = abs(place[0] - x) > half_x or abs(place[1] - y) > half_y
        if beside or not 0 < above < HIGHEST_M:
            return None
        flat = spread[:2] - slope[:, None] * spread[2]
        (a, b), (_, c) = (flat @ flat.T).tolist()
        # Eigenvalues and eigenvectors of a symmetric matrix of two rows in closed form.
        radius = math.hypot((a - c) / 2, b)
        turn = math.atan2(2 * b, a - c) / 2
        cos, sin = math.cos(turn), math.sin(turn)
        half = [
            math.sqrt(max((a + c) / 2 + sign * radius, SMALLEST_M**2)) + BLUR * above
            for sign in (1, -1)
        ]
        opacity = OPACITY / (1 + above / FADE_M)
        colour = np.array((0.0, 0.0, 0.0, opacity), dtype=np.float32)
        axes = np.array((cos, -sin, 0.0, sin, cos, 0.0, 0.0, 0.0, 1.0))
        return np.array((*half, LIFT_M / 4)), np.array(place), axes, colour
