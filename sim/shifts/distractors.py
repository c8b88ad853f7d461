"""The shift by distractors: large objects that are unrelated to the task."""

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN, SCENERY
from stringline.sim.shifts.shift import EpisodeStart, Shift, ShiftedWorld

AWAY = (0.0, 0.0, -5.0)  # Position of distractors that an episode does not use.
CLEARANCE_M = 0.08  # Smallest gap to the task's objects: room for a hand above them.
APART_M = 0.05  # Smallest gap between distractors.
TRIES = 100


@dataclass(frozen=True)
class Zone:
    """A rectangle of the base frame, x and y in metres, in which distractors can stand.

    They stand on the table, or on the floor beside it, far from the task's objects.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    on_table: bool = True


@dataclass(frozen=True)
class _Kind:
    """An upright shape: MuJoCo's half sizes, and the height of its middle above the ground."""

    shape: str
    size: tuple[float, ...]
    middle: float
    on_table: bool

    @property
    def radius(self) -> float:
        """Radius of the smallest upright cylinder around it, metres."""
        return float(np.hypot(self.size[0], self.size[1])) if self.shape == "box" else self.size[0]


KINDS = {
    "distractor_carton": _Kind("box", (0.05, 0.035, 0.11), 0.11, on_table=True),
    "distractor_canister": _Kind("cylinder", (0.045, 0.09), 0.09, on_table=True),
    "distractor_bottle": _Kind("cylinder", (0.035, 0.13), 0.13, on_table=True),
    "distractor_tin": _Kind("box", (0.045, 0.04, 0.06), 0.06, on_table=True),
    # From the floor to 22 and 30 cm above z = 0.
    "distractor_crate": _Kind("box", (0.16, 0.06, 0.4), -0.18, on_table=False),
    "distractor_drum": _Kind("cylinder", (0.09, 0.4), -0.1, on_table=False),
}


class Distractors(Shift):
    """Large static objects of drawn colours beside the task's objects.

    There are four on the table, and a crate and a drum on the floor; at half strength half of them
    are used. Those on the table keep 8 cm off all objects of the task, and are omitted if there is
    no such place. Arms can collide with them, and they do not move. They are added to the arena
    `root` before it is compiled; a kind without a zone is not used.
    """

    name: ClassVar[str] = "distractors"

    def __init__(self, root: mjcf.RootElement, zones: Sequence[Zone]) -> None:
        self._zones = zones
        for name, kind in KINDS.items():
            body = root.worldbody.add("body", name=name, pos=AWAY)
            bits = {"contype": SCENERY, "conaffinity": 0, "condim": 3, "group": HIDDEN}
            body.add("geom", name=name, type=kind.shape, size=kind.size, **bits)

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the distractors' poses and looks; the pose of the table must not be restored."""
        model = scene.model
        bodies, geoms = ([find(name).id for name in KINDS] for find in (model.body, model.geom))
        body, geom = (slice(min(numbers), max(numbers) + 1) for numbers in (bodies, geoms))
        return (
            model.body_pos[body],
            model.body_quat[body],
            model.geom_group[geom],
            model.geom_rgba[geom],
        )

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Draws distractors, places and colours; a stronger shift adds distractors only."""
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
            # Distractors on the floor are far from the task's objects.
            others = taken if kind.on_table else taken[len(start.spots) :]
            if (spot := self._spot(kind, others, rng)) is not None:
                bottom = start.table_height if kind.on_table else 0.0
                _stand(scene.model, name, (*spot, bottom + kind.middle), yaw, colour)
                taken = np.vstack([taken, (*spot, kind.radius)])

    def _spot(
        self, kind: _Kind, others: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[float, float] | None:
        """Returns x and y of a free place, or None; always uses the same number of draws."""
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
