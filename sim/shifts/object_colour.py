"""Things of other colours: pictures change, and nothing else."""

import colorsys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stringline.sim.shifts.shift import Scene, Shift, Start

DRAWS = 4  # Of these colours the one is taken that is farthest from the thing's own.
SATURATION, VALUE = (0.5, 1.0), (0.4, 1.0)  # The table is darker and greyer.


class ObjectColour(Shift):
    """Each thing of the task gets a drawn colour; what is lighter or darker about it than the rest of it stays so.

    At full strength its mean colour is the drawn one, at half of it halfway there.
    """

    name: ClassVar[str] = "object_colour"

    def touched(self, scene: Scene) -> Sequence[NDArray[Any]]:
        """Colours of all shapes."""
        return (scene.model.geom_rgba,)

    def apply(self, scene: Scene, start: Start, strength: float, rng: np.random.Generator) -> None:
        """Moves the colours of each thing's shapes by the same amount."""
        for shapes in scene.things.values():
            own: NDArray[np.float64] = scene.model.geom_rgba[shapes, :3].astype(np.float64)
            drawn = [colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(*SATURATION), rng.uniform(*VALUE)) for _ in range(DRAWS)]
            away = np.array(drawn) - own.mean(axis=0)
            farthest = away[np.linalg.norm(away, axis=1).argmax()]
            scene.model.geom_rgba[shapes, :3] = np.clip(own + strength * farthest, 0.0, 1.0)
