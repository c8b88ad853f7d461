"""Large things beside the work that the task has nothing to do with."""

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN, SCENERY
from stringline.sim.shifts.shift import Scene, Shift, Start

AWAY = (
    0.0,
    0.0,
    -5.0,
)  # Where a distractor is that an episode does not have; it is not drawn there either.
CLEARANCE_M = (
    0.08  # From what the task has on the table: a gripper comes from above with room for its hand.
)
APART_M = 0.05  # From one another.
TRIES = 100


@dataclass(frozen=True)
class Zone:
    """Where distractors can stand: evenly in a rectangle of the base frame.

    Attributes:
        x: From and to, metres.
        y: From and to, metres.
        on_table: Whether they stand on the table, else on the floor behind or beside it, where
            nothing of the task is.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    on_table: bool = True


@dataclass(frozen=True)
class _Kind:
    """A shape that stands upright: half sizes as MuJoCo has them, and where its middle is above what it stands on."""

    shape: str
    size: tuple[float, ...]
    middle: float
    on_table: bool

    @property
    def radius(self) -> float:
        """Of the smallest upright cylinder around it, metres."""
        return float(np.hypot(self.size[0], self.size[1])) if self.shape == "box" else self.size[0]


KINDS = {
    "distractor_carton": _Kind("box", (0.05, 0.035, 0.11), 0.11, on_table=True),
    "distractor_canister": _Kind("cylinder", (0.045, 0.09), 0.09, on_table=True),
    "distractor_bottle": _Kind("cylinder", (0.035, 0.13), 0.13, on_table=True),
    "distractor_tin": _Kind("box", (0.045, 0.04, 0.06), 0.06, on_table=True),
    "distractor_crate": _Kind(
        "box", (0.16, 0.06, 0.4), -0.18, on_table=False
    ),  # From the floor to 22 cm above z = 0.
    "distractor_drum": _Kind("cylinder", (0.09, 0.4), -0.1, on_table=False),  # To 30 cm above it.
}


class Distractors(Shift):
    """Large things of drawn colours stand still beside the work; at full strength all that there is a zone for.

    These are four on the table, and a crate and a drum on the floor; at half of the strength half
    of them are there. What stands on the table keeps 8 cm away from all things of the task, and is
    left out where there is no such place. They can be bumped into, and do not give way.

    Args:
        root: The arena, before it is compiled.
        zones: Where they can stand.
    """

    name: ClassVar[str] = "distractors"

    def __init__(self, root: mjcf.RootElement, zones: Sequence[Zone]) -> None:
        self._zones = zones
        for name, kind in KINDS.items():
            body = root.worldbody.add("body", name=name, pos=AWAY)
            bits = {"contype": SCENERY, "conaffinity": 0, "condim": 3, "group": HIDDEN}
            body.add("geom", name=name, type=kind.shape, size=kind.size, **bits)

    def touched(self, scene: Scene) -> Sequence[NDArray[Any]]:
        """Where their own bodies are, and how these look; the table, which moves too, is none of them."""
        model = scene.model
        bodies, geoms = ([find(name).id for name in KINDS] for find in (model.body, model.geom))
        body, geom = (slice(min(numbers), max(numbers) + 1) for numbers in (bodies, geoms))
        return (
            model.body_pos[body],
            model.body_quat[body],
            model.geom_group[geom],
            model.geom_rgba[geom],
        )

    def apply(self, scene: Scene, start: Start, strength: float, rng: np.random.Generator) -> None:
        """Draws which ones are there, where, and their colours; a stronger shift adds some and leaves the others."""
        levels = {zone.on_table for zone in self._zones}
        able = [name for name, kind in KINDS.items() if kind.on_table in levels]
        count = int(np.ceil(strength * len(able) - 1e-9))
        taken: NDArray[np.float64] = start.spots + np.array([0.0, 0.0, CLEARANCE_M - APART_M])
        for number in rng.permutation(len(able))[:count]:
            name = able[number]
            kind = KINDS[able[number]]
            colour = colorsys.hsv_to_rgb(
                rng.uniform(), rng.uniform(0.3, 0.9), rng.uniform(0.4, 0.9)
            )
            yaw = rng.uniform(-np.pi, np.pi) if kind.on_table else rng.uniform(-0.3, 0.3)
            others = (
                taken if kind.on_table else taken[len(start.spots) :]
            )  # What stands on the floor is far from the task's.
            if (spot := self._spot(kind, others, rng)) is not None:
                bottom = start.table_height if kind.on_table else 0.0
                _stand(scene.model, name, (*spot, bottom + kind.middle), yaw, colour)
                taken = np.vstack([taken, (*spot, kind.radius)])

    def _spot(
        self, kind: _Kind, others: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[float, float] | None:
        """Returns x and y of a free place, or None; how often it draws does not depend on where it finds one."""
        zones = [zone for zone in self._zones if zone.on_table == kind.on_table]
        draws = rng.uniform(size=(TRIES, 3))
        for choice, across, along in draws:
            zone = zones[int(choice * len(zones))]
            x = np.interp(across, (0, 1), zone.x)
            y = np.interp(along, (0, 1), zone.y)
            apart = np.hypot(others[:, 0] - x, others[:, 1] - y) - others[:, 2] - kind.radius
            if (apart > APART_M).all():
                return float(x), float(y)
        return None


def _stand(
    model: mujoco.MjModel,
    name: str,
    position: tuple[float, ...],
    yaw: float,
    colour: tuple[float, float, float],
) -> None:
    body = model.body(name).id
    geom = model.geom(name).id
    model.body_pos[body] = position
    model.body_quat[body] = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
    model.geom_group[geom] = DRAWN
    model.geom_rgba[geom] = (*colour, 1.0)
