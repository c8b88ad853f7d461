"""The range of poses from which arms start, and draws from it that are free of contacts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.robots.robot import Robot

Range = tuple[float, float]
TRIES = 60
# Gap between an arm and everything else at the start, metres; less than at the home poses is free.
GAP_M = 0.02
TOUCHING_M = 1e-4  # Depth from which shapes of the same arm count as colliding.
X, Y, Z = np.eye(3)


@dataclass(frozen=True)
class StartRange:
    """Uniform ranges of each gripper's start pose around the home pose.

    Attributes:
        level_m: Largest distance along x and along y of the base frame, metres.
        height_m: Lowest and highest distance along z, metres.
        yaw_deg: Largest rotation about the vertical axis, degrees.
        tilt_deg: Largest rotation about a level axis of any direction, degrees.
        opening: Smallest and largest opening of the gripper, 0 closed to 1 open.
    """

    level_m: float
    height_m: Range
    yaw_deg: float
    tilt_deg: float
    opening: Range

    def draw(
        self, T_base_home: Matrix, home_opening: float, rng: np.random.Generator, share: float = 1.0
    ) -> tuple[Matrix, float]:
        """Draws a pose (4, 4) and an opening of a gripper.

        Args:
            T_base_home: (4, 4), its home pose.
            home_opening: Its opening there.
            rng: Source of randomness.
            share: Share of the distances from home in the ranges, 0 to 1.
        """
        level = rng.uniform(-self.level_m, self.level_m, 2)
        offset = share * np.array([*level, rng.uniform(*self.height_m)])
        direction = rng.uniform(-np.pi, np.pi)
        axis = np.cos(direction) * X + np.sin(direction) * Y
        tilt = rotation_about(axis, share * np.radians(rng.uniform(0.0, self.tilt_deg)))
        yaw = rotation_about(Z, share * np.radians(rng.uniform(-self.yaw_deg, self.yaw_deg)))
        turned = pose(T_base_home[:3, 3] + offset, tilt @ yaw @ T_base_home[:3, :3])
        opening = float(rng.uniform(*self.opening))
        return turned, share * opening + (1 - share) * home_opening

    def __str__(self) -> str:
        """Returns the ranges in words, for documentation."""
        low, high = (f"{100 * height:+.0f}" for height in self.height_m)
        closed, opened = self.opening
        return (
            f"up to {100 * self.level_m:.0f} cm along x and y, {low} to {high} cm in height, up to "
            f"{self.yaw_deg:.0f} degrees of yaw and {self.tilt_deg:.0f} of tilt, gripper "
            f"{closed:g} to {opened:g} open"
        )


class StartDraws:
    """Draws the joints (J,) of an episode's start.

    Each arm in turn gets the first of 60 draws that its joints reach and in which it keeps 2 cm
    away from table, objects and the other arm.
    """

    def __init__(self, robot: Robot, embodiment: Embodiment, chosen: StartRange) -> None:
        self._robot = robot
        self._embodiment = embodiment
        self._range = chosen
        self._kinematics = InverseKinematics(embodiment)
        self._home = embodiment.forward_kinematics(embodiment.home)

    def draw(self, physics: mjcf.Physics, rng: np.random.Generator, share: float = 1.0) -> Vector:
        """Returns the joints (J,) of a start among the objects, which stay where they are.

        The distances from home are a share, 0 to 1, of those in the range.

        Raises:
            ValueError: An arm has no free start in its range, such as over a table that is too
                high.
        """
        home = self._embodiment.home
        shapes = {
            arm: np.array(physics.bind(self._robot.shapes(arm)).element_id)
            for arm in self._embodiment.arms
        }
        usual = self._contacts(physics, home, list(shapes.values()))
        q = home.copy()
        for arm, own in shapes.items():
            draw = partial(
                self._range.draw,
                self._home[arm],
                float(home[self._embodiment.grippers[arm]]),
                rng,
                share,
            )
            q = self._free(physics, q, arm, own, usual, draw)
        return q

    def _free(
        self,
        physics: mjcf.Physics,
        q: Vector,
        arm: str,
        own: NDArray[np.int_],
        usual: set[tuple[int, int]],
        draw: Callable[[], tuple[Matrix, float]],
    ) -> Vector:
        for _ in range(TRIES):
            T_base_gripper, opening = draw()
            try:
                found = self._kinematics.solve({arm: T_base_gripper}, q)
            except OutOfReachError:
                continue
            found[self._embodiment.grippers[arm]] = opening
            if self._contacts(physics, found, [own]) <= usual:
                return found
        raise ValueError(
            f"None of {TRIES} start poses of the {arm} arm is reachable and free of contacts. The "
            f"range is {self._range}. start_spread=0 starts at the home pose."
        )

    def _contacts(
        self, physics: mjcf.Physics, q: Vector, arms: Sequence[NDArray[np.int_]]
    ) -> set[tuple[int, int]]:
        """Returns the pairs of shapes that are close, of which one belongs to one of the arms."""
        model = physics.model.ptr
        data = physics.data.ptr
        self._robot.put(physics, q)
        margins = model.geom_margin.copy()
        model.geom_margin[np.concatenate(arms)] += GAP_M
        mujoco.mj_fwdPosition(model, data)
        model.geom_margin[:] = margins
        pairs, gaps = data.contact.geom, data.contact.dist
        inside = np.stack([np.isin(pairs, own).sum(axis=1) for own in arms])
        close = (inside == 1).any(axis=0) | ((inside == 2).any(axis=0) & (gaps < -TOUCHING_M))
        return {(int(a), int(b)) for a, b in pairs[close]}
