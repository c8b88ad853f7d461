"""Experts by the name of their task."""

from collections.abc import Callable
from pkgutil import resolve_name

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert import Expert
from stringline.sim.tasks.task_registry import TASKS, is_user_task, task_class


def make_expert(task: str, *, varied: bool = True) -> Expert[TaskEnvironment]:
    """Builds the expert of a task, or of a user's task `module:Class` by its static `make_expert`.

    A varied expert varies its motions and recovers from errors; a plain one, which only some tasks
    have, does not. Users' tasks have one expert for both; a class that is derived from a built-in
    task and has no expert of its own gets the expert of that task.

    Raises:
        ValueError: The task or its expert does not exist; the message contains the nearest names.
    """
    if is_user_task(task):
        return _user_expert(task)
    modules = {
        name: entry.expert if varied else entry.plain_expert for name, entry in TASKS.items()
    }
    experts = {name: where for name, where in modules.items() if where is not None}
    if task not in experts:
        kind = "expert for the task" if varied else "plain expert for the task"
        raise unknown_name(kind, task, experts)
    make: Callable[[], Expert[TaskEnvironment]] = resolve_name(f"{__package__}.{experts[task]}")
    return make()


def _user_expert(task: str) -> Expert[TaskEnvironment]:
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
    return make_expert(built_in)
