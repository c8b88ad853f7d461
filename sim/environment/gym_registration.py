"""Makes every task known to `gymnasium.make`.

    import gymnasium
    import stringline.sim.environment.gym_registration

    env = gymnasium.make("stringline/HandOverBanana-v0", cameras=["overhead"], image_size=96)

gymnasium 1.0 dropped the entry points by which packages were found without an import. Where there
is no place for one, as in the workers of a vector environment, the name does it:
"stringline.sim.environment.gym_registration:stringline/HandOverBanana-v0".

Importing this loads neither the simulation nor graphics; the first `make` does.
"""

from typing import Any

import gymnasium

from stringline.datasets.contract.arguments import unknown_name
from stringline.sim.rendering.opengl_context import import_bindings

# Those of the catalogue, which would bring the whole simulation along; a test compares them.
TASK_NAMES = (
    "bowl_on_rack",
    "double_insertion",
    "fmb_1",
    "fmb_2",
    "fruit_bowl",
    "glass_on_rack",
    "hand_over_banana",
    "hand_over_pen",
    "kuka_bimanual_pick",
    "kuka_bimanual_place",
    "kuka_hand_over",
    "kuka_pick",
    "kuka_place",
    "mug_on_plate",
    "plate_on_rack",
    "single_insertion",
    "storage_bin",
)


def environment_id(task: str) -> str:
    """Returns the name that gymnasium knows a task by: `stringline/HandOverBanana-v0` for `hand_over_banana`.

    Raises:
        ValueError: There is no such task; the message names the nearest ones.
    """
    if task not in TASK_NAMES:
        raise unknown_name("task", task, TASK_NAMES)
    return f"stringline/{''.join(word.capitalize() for word in task.split('_'))}-v0"


def make_environment(
    task: str, *, control_hz: float = 50.0, **settings: Any
) -> gymnasium.Env[Any, Any]:
    """Builds the environment of a task; gymnasium calls it.

    Args:
        task: Its name in the catalogue.
        control_hz: Actions per second.
        settings: The other arguments of `TaskEnvironment`: cameras, image_size, frame_hz,
            time_limit_s, image_delay_s, joint_delay_s, segmentation, rendering, render_mode and
            robot_model.

    Raises:
        ValueError: There is no such task, or a setting is out of range.
        RuntimeError: MUJOCO_GL asks for a graphics driver that is not there; it says what to
            install.
    """
    import_bindings()
    from stringline.sim.environment.environment import TaskEnvironment
    from stringline.sim.tasks.task_catalogue import make_task

    return TaskEnvironment(make_task(task, control_hz), control_hz=control_hz, **settings)


for _task in TASK_NAMES:
    gymnasium.register(
        environment_id(_task), entry_point=f"{__name__}:make_environment", kwargs={"task": _task}
    )
