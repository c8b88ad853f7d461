"""The nearest change of joints that gives distances their room: a quadratic programme.

It is solved by DAQP, a dual active-set method (Arnström, Bemporad and Axehill, 2022), exactly and
within microseconds at this size.
"""

import daqp
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Directions that give less than about 1 % of the room of the usual ones are damped: they would move
# an arm far away. Squared metres per squared radian and unit of cost.
_DAMPING = 1e-4
_SOFT = 8  # DAQP's mark of a bound that may be missed, where there is no way to satisfy all.


def nearest_change(
    cost: Vector, aim: Vector, slopes: Vector, lacking: Vector, bounds: tuple[Vector, Vector]
) -> Vector:
    """Returns the change (H,) nearest to `aim` that gives distances the room that they lack.

    Minimises (x - aim)' cost (x - aim) with slopes x >= lacking and lower <= x <= upper. Room that
    the bounds do not allow is missed as little as possible; so are distances that no x changes.

    Args:
        cost: (H, H) positive definite.
        aim: (H,).
        slopes: (K, H) of the distances.
        lacking: (K,) room, negative where there is room to spare.
        bounds: (H,) lower and (H,) upper bounds.
    """
    lower, upper = bounds
    sense = np.zeros(len(aim) + len(lacking), dtype=np.int32)
    sense[len(aim) :] = _SOFT
    change, _, _, _ = daqp.solve(
        cost,
        -cost @ aim,
        slopes,
        np.concatenate([upper, np.full(len(lacking), np.inf)]),
        np.concatenate([lower, lacking]),
        sense,
        rho_soft=_DAMPING,
    )
    return np.asarray(np.minimum(np.maximum(change, lower), upper))
