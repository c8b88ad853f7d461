"""Experts: their interface, and the expert of a task by the task's name."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Protocol, TypeVar, cast

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.rollout.world_interface import World
from stringline.sim.tasks.task_registry import TASKS, is_user_task, task_class

WorldT = TypeVar("WorldT", bound=World, contravariant=True)


class Expert(Protocol[WorldT]):
    """Controls the robot of a world whose true state it sees."""

    def reset(self, env: WorldT, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` makes episodes vary."""

    def act(self, env: WorldT) -> Vector:
        """Returns the next action (J,).

        Raises:
            OutOfReachError: A pose on the expert's way is out of reach.
        """
        ...


class CorrectingExpert(Expert[WorldT], Protocol[WorldT]):
    """An expert that can take over from another controller."""

    def take_over(self, env: WorldT, rng: np.random.Generator, targets: Vector) -> None:
        """Continues the episode of `env` from its present state; `rng` makes it vary.

        `targets` (J,) are the last joint targets of the other controller.
        """


def make_correcting_expert(task: str, *, varied: bool = True) -> CorrectingExpert[TaskEnvironment]:
    """Builds the expert of a task that can take over; see `make_expert`.

    The plain one of `hand_over_banana` cannot; the varied one without its variation replaces it.

    Raises:
        ValueError: The task or its expert does not exist, or the expert cannot take over.
    """
    entry = TASKS.get(task)
    expert = _class_of(entry.expert)(varied=varied) if entry else make_expert(task, varied=varied)
    if not hasattr(expert, "take_over"):
        raise ValueError(
            f"The expert of {task} cannot take over: {type(expert).__name__} has no method "
            "take_over(env, rng, targets). Derive it from ScriptedExpert, or add the method."
        )
    return cast("CorrectingExpert[TaskEnvironment]", expert)


def make_expert(task: str, *, varied: bool = True) -> Expert[TaskEnvironment]:
    """Builds the expert of a task, or of a user's task `module:Class` by its static `make_expert`.

    The choices of a varied expert are drawn; a plain one acts in one way at one pace. Both recover
    from errors, except the plain one of `hand_over_banana`. A user's task has one expert for both
    if its class makes one; a class that is derived from a built-in task and makes none gets the
    expert of that task.

    Raises:
        ValueError: The task or its expert does not exist; the message contains the nearest names.
    """
    if is_user_task(task):
        return _user_expert(task, varied=varied)
    if task not in TASKS:
        raise unknown_name("expert for the task", task, TASKS)
    entry = TASKS[task]
    if not varied and entry.plain_expert is not None:
        return _class_of(entry.plain_expert)()
    return _class_of(entry.expert)(varied=varied)


def _class_of(where: str) -> Callable[..., Expert[TaskEnvironment]]:
    found: Callable[..., Expert[TaskEnvironment]] = resolve_name(f"{__package__}.{where}")
    return found


def _user_expert(task: str, *, varied: bool) -> Expert[TaskEnvironment]:
    kind = task_class(task)
    make: Callable[[], Expert[TaskEnvironment]] | None = getattr(kind, "make_expert", None)
    if make is not None:
        return make()
    names = (vars(each).get("name") for each in kind.__mro__)
    built_in = next((name for name in names if name in TASKS), None)
    if built_in is None:
        raise ValueError(
            f"{task} has no expert. Add a static method make_expert() to its class, or record "
            "demonstrations with stringline-teleop."
        )
    return make_expert(built_in, varied=varied)
