"""The base class of scripted experts: a script of skills that reads the true state of the world."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.motion import Motion
from stringline.sim.experts.scene import Scene
from stringline.sim.experts.skills import Skills
from stringline.sim.tasks.tabletop import TabletopTask

TaskT = TypeVar("TaskT", bound=TabletopTask)


class ScriptedExpert(ABC, Generic[TaskT]):
    """Follows a script; grasps, motions and pace vary from episode to episode unless it is plain.

    Args:
        paces: Range of the factor by which the phases of an episode last longer than their nominal
            duration; the factor is drawn uniformly. None: the range of the class.
        varied: Whether grasps, goals and pace are drawn. Otherwise the expert acts in one way at
            its nominal pace: from a varied start it goes home first, of what is in reach it chooses
            the grasp with the smallest turn of the gripper from home, and numbers near the middle
            of their ranges.

    Attributes:
        task_class: Class of the task; subclasses set it.
        from_home: Whether the arms go home first from a varied start, because the script needs a
            long way in reach, which other joints may not have.
        paces: Default range of the factor. Where the limits of the joints already stretch the long
            motions of faster episodes, only a wide range varies the length of episodes.
    """

    task_class: type[TaskT]
    from_home: ClassVar[bool] = False
    paces: ClassVar[tuple[float, float]] = (0.8, 1.35)

    def __init__(self, paces: tuple[float, float] | None = None, *, varied: bool = True) -> None:
        self._varied = varied
        self._paces = paces or self.paces
        if not 0.5 <= self._paces[0] <= self._paces[1] <= 5:
            raise ValueError(
                f"paces is {paces}; allowed: two numbers from 0.5 to 5, the smaller one first."
            )
        self._embodiment = self.task_class.cell.embodiment
        self._kinematics = InverseKinematics(self._embodiment)
        self._plan: Iterator[Vector] = iter(())
        self._last = self._embodiment.home.copy()

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` makes episodes vary.

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
        motion = Motion(self._embodiment, self._kinematics, hz, start=env.start, **limits)
        self._last = motion.q.copy()
        pace = rng.uniform(*self._paces) if self._varied else 1.0
        scene = Scene(env, env.task)
        skills = Skills(scene, motion, self._kinematics, rng, pace, varied=self._varied)
        skills.attempt(0)
        self._plan = self._follow(env.task, skills)

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next joint targets (J,); after the end of the script the last ones."""
        self._last = next(self._plan, self._last)
        return self._last

    def _follow(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Follows the script; where nothing is in reach from a varied start, from home."""
        if (self.from_home or not self._varied) and not task.starts_at_home:
            yield from skills.go_home(*self._embodiment.arms)
        script = self.script(task, skills)
        try:
            first = next(script, None)
        except OutOfReachError:
            if task.starts_at_home:
                raise
            yield from skills.go_home(*self._embodiment.arms)
            script = self.script(task, skills)
        else:
            if first is not None:
                yield first
        yield from script

    @abstractmethod
    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (J,), one per control period; the world moves in between."""
