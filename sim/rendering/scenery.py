"""What images show beyond the shapes of a model: new textures and soft shadows.

A shadow map costs 2 to 5 times all the rest of an image in software. A soft shadow is the shadow of
an ellipsoid around the shapes of a body, drawn as two flat translucent ellipses on the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.typing import NDArray

LAYERS = ((1.15, 0.2), (0.8, 0.24))  # Size and opacity of the ellipses of a shadow.
BLUR = 1.0  # Growth of a shadow's half lengths per metre above the table.
FADE_M = 0.12  # Height at which a shadow has half of its opacity.
HIGHEST_M = 0.4  # Bodies above cast no shadow that could be seen.
LIFT_M = 0.0004  # Above the table; the thickness is less, and depth has steps of 1 mm.
SMALLEST_M = 0.004

Vectors = NDArray[np.float64]


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
            for place, axes, half, opacity in self._ellipses(middle, turn * caster.half):
                if scene.ngeom < scene.maxgeom:
                    mujoco.mjv_initGeom(
                        scene.geoms[scene.ngeom],
                        mujoco.mjtGeom.mjGEOM_ELLIPSOID.value,
                        half,
                        place,
                        axes.ravel(),
                        np.array((0.0, 0.0, 0.0, opacity), dtype=np.float32),
                    )
                    scene.ngeom += 1

    def _ellipses(
        self, middle: Vectors, spread: Vectors
    ) -> list[tuple[Vectors, Vectors, Vectors, float]]:
        """Returns places, axes (3, 3), half lengths and opacities of the shadow of an ellipsoid.

        An ellipsoid {m + S u: |u| <= 1} has the shadow {P m + P S u} under the projection P along
        the light; its axes are the eigenvectors of P S S' P'.
        """
        x, y, half_x, half_y, top = self.ground
        above = middle[2] - top
        if not 0 < above < HIGHEST_M:
            return []
        slope = self.light[:2] / self.light[2]
        place = np.array([*(middle[:2] - slope * above), top + LIFT_M])
        if abs(place[0] - x) > half_x or abs(place[1] - y) > half_y:
            return []
        flat = spread[:2] - slope[:, None] * spread[2]
        squares, vectors = np.linalg.eigh(flat @ flat.T)
        axes = np.eye(3)
        axes[:2, :2] = vectors
        axes[:, 1] *= np.linalg.det(vectors)  # A rotation, no reflection.
        lengths = np.sqrt(np.maximum(squares, 0.0))
        found = []
        for size, opacity in LAYERS:
            half = np.maximum(size * lengths + BLUR * above * (size - LAYERS[-1][0]), SMALLEST_M)
            faded = opacity / (1 + above / FADE_M)
            found.append((place, axes, np.array([*half, LIFT_M / 4]), faded))
        return found
