"""What scripted experts have in common: a script of skills that reads the true world as it goes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.motion import Motion
from stringline.sim.experts.scene import Scene
from stringline.sim.experts.skills import Skills
from stringline.sim.tasks.tabletop import TabletopTask

PACES = (0.8, 1.35)
TaskT = TypeVar("TaskT", bound=TabletopTask)


class ScriptedExpert(ABC, Generic[TaskT]):
    """Follows a script; each episode has its own pace, ways of grasping and ways through the air.

    Args:
        paces: Each episode's phases last that many times their normal duration, drawn evenly from
            this range. The same number twice: always that pace.

    Attributes:
        task_class: What it does; subclasses set it.
    """

    task_class: type[TaskT]

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        if not 0.5 <= paces[0] <= paces[1] <= 5:
            raise ValueError(
                f"paces is {paces}; allowed: two numbers from 0.5 to 5, the smaller one first."
            )
        self._paces = paces
        self._body = self.task_class.cell.embodiment
        self._kinematics = InverseKinematics(self._body)
        self._plan: Iterator[Vector] = iter(())
        self._last = self._body.home.copy()

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` is for variety.

        Raises:
            ValueError: The environment runs another task.
        """
        if not isinstance(env.task, self.task_class):
            raise ValueError(
                f"This expert does {self.task_class.name!r}; the environment runs "
                f"{env.task.name!r}."
            )
        cell = self.task_class.cell
        hz = env.contract.control_hz
        limits = {"top_speed": cell.top_speed, "top_acceleration": cell.top_acceleration}
        motion = Motion(self._body, self._kinematics, hz, **limits)
        self._last = motion.q.copy()
        skills = Skills(
            Scene(env, env.task), motion, self._kinematics, rng, rng.uniform(*self._paces)
        )
        self._plan = self.script(env.task, skills)

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next joint targets (J,); after the end of the script the last ones.

        Raises:
            OutOfReachError: A target is out of reach.
        """
        self._last = next(self._plan, self._last)
        return self._last

    @abstractmethod
    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (J,), one per control period; between two of them the world moves."""
