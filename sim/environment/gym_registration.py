"""Registers every task with gymnasium, for `gymnasium.make`.

    import gymnasium
    import stringline.sim.environment.gym_registration

    env = gymnasium.make("stringline/HandOverBanana-v0", cameras=["overhead"], image_size=96)

gymnasium 1.0 has no entry points that would make this import unnecessary. Where an import is not
possible, as in the workers of a vector environment, use the name with the module in front:
"stringline.sim.environment.gym_registration:stringline/HandOverBanana-v0".

Importing this module loads neither the simulation nor graphics; the first `make` does.
"""

from typing import Any

import gymnasium

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.rendering.opengl_context import import_bindings
from stringline.sim.tasks.task_registry import TASKS, make_task


def environment_id(task: str) -> str:
    """Returns the gymnasium id of a task, such as `stringline/HandOverBanana-v0`.

    Raises:
        ValueError: There is no such task; the message contains the nearest names.
    """
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    return f"stringline/{''.join(word.capitalize() for word in task.split('_'))}-v0"


def make_environment(
    task: str, *, control_hz: float = 50.0, embodiment: str | None = None, **settings: Any
) -> gymnasium.Env[Any, Any]:
    """Builds the environment of a task; gymnasium calls it.

    Args:
        task: Name in `TASKS`.
        control_hz: Actions per second.
        embodiment: Another arm than that of the workcell, see `make_task`.
        settings: The other arguments of `TaskEnvironment`.

    Raises:
        ValueError: There is no such task, or a setting is out of range.
        RuntimeError: The graphics driver that MUJOCO_GL names is missing; the message says what to
            install.
    """
    import_bindings()

    from stringline.sim.environment.environment import TaskEnvironment

    built = make_task(task, control_hz, embodiment)
    return TaskEnvironment(built, control_hz=control_hz, **settings)


for _task in TASKS:
    gymnasium.register(
        environment_id(_task), entry_point=f"{__name__}:make_environment", kwargs={"task": _task}
    )
