"""A scripted expert that picks a thing up."""

from collections.abc import Iterator
from contextlib import suppress

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.experts.thing_grasps import holder, take
from stringline.sim.tasks.kuka_pick import LIFTED_M, KukaPick

LIFTS_M = (0.125, 0.17)
ROUNDS, LOOKS = 6, 8
PACES = (0.8, 1.9)  # Wider than others: the arm's limits already stretch the long moves of the faster episodes.


class KukaPickExpert(ScriptedExpert[KukaPick]):
    """Varies where the thing is taken, from which side and how steeply, how high it is lifted, and its pace."""

    task_class = KukaPick

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: KukaPick, skills: Skills) -> Iterator[Vector]:
        """Takes the thing and holds it up, again from wherever it has fallen."""
        for _ in range(ROUNDS):
            with suppress(OutOfReachError):
                yield from take(skills, task.thing, skills.rng.uniform(*LIFTS_M))
                yield from self._hold_up(task, skills)
            if holder(skills, task.thing) is None:
                yield from self._start_again(skills)

    def _hold_up(self, task: KukaPick, skills: Skills) -> Iterator[Vector]:
        """Waits for as long as the thing is held, and lifts it further where it has slipped too low."""
        for _ in range(LOOKS):
            arm = holder(skills, task.thing)
            if arm is None:
                break
            missing = LIFTED_M - task.clearance(skills.scene.env.physics)
            if missing > 0:
                yield from skills.rise(arm, missing + 0.02)
            yield from skills.wait(0.3)

    def _start_again(self, skills: Skills) -> Iterator[Vector]:
        arms = skills.scene.task.embodiment.arms
        for arm in arms:
            skills.motion.grip(arm, 1.0)
        yield from skills.go_home(*arms)
