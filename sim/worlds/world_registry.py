"""Worlds by the names of their tasks: this project's, third-party ones and those of the user.

Third-party environments run here or in an interpreter of their own (`remote_environment.py`).
Importing this module does not load the third-party worlds and their experts.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.environment.environment import make_environment
from stringline.sim.experts.expert_registry import Expert, make_expert
from stringline.sim.interpreters.environment_process import Interpreter
from stringline.sim.robots.arm_appearance import PRIMITIVES
from stringline.sim.rollout.world_interface import World
from stringline.sim.tasks.task_registry import TASKS, is_remote_task, is_user_task, make_task

if TYPE_CHECKING:
    from stringline.sim.worlds.remote_environment import RemoteEnvironment
    from stringline.sim.worlds.third_party_environment import ThirdPartyEnvironment

GYM_ALOHA: Mapping[str, str] = {
    "gym_aloha_transfer_cube": "gym_aloha:TransferCubeExpert",
    "gym_aloha_insertion": "gym_aloha:InsertionExpert",
}
"""The tasks of gym-aloha with their experts, `module:Class` of this folder."""
ALOHA_SIM = "aloha_sim_"
"""The beginning of the names of the tasks of aloha_sim."""
# An installed aloha_sim has further tasks.
THIRD_PARTY_TASKS: tuple[str, ...] = (*GYM_ALOHA, f"{ALOHA_SIM}hand_over_banana")


def is_third_party(task: str) -> bool:
    """Returns whether a name belongs to a task of a third-party environment."""
    return task in GYM_ALOHA or task.startswith(ALOHA_SIM) or is_remote_task(task)


def open_third_party(
    task: str, *, segmentation: bool = False, **settings: Any
) -> "ThirdPartyEnvironment":
    """Builds a third-party environment; for the settings see `ThirdPartyEnvironment`.

    Raises:
        ValueError: The package is not installed or has another version, the task is unknown, or a
            setting is out of range.
    """
    if segmentation:
        raise ValueError(f"segments=true; the images of the third-party task {task} have none.")
    adapter = _named("gym_aloha:GymAloha" if task in GYM_ALOHA else "aloha_sim:AlohaSim")(task)
    try:
        world: ThirdPartyEnvironment = _named("third_party_environment:ThirdPartyEnvironment")(
            adapter, **settings
        )
        return world
    except ValueError:
        adapter.close()
        raise


def open_remote(
    task: str,
    interpreter: Interpreter,
    *,
    segmentation: bool = False,
    robot_model: str = PRIMITIVES,
    **settings: Any,
) -> "RemoteEnvironment":
    """Starts an environment in another interpreter; for the settings see `RemoteEnvironment`.

    Raises:
        ValueError: It cannot be built, or a setting is out of range.
    """
    if segmentation:
        raise ValueError(f"segments=true; the images of {task} have none.")
    if robot_model != PRIMITIVES:
        raise ValueError(
            f"robot.model is {robot_model!r}; {task} has arms of its own. Omit robot.model."
        )
    world: RemoteEnvironment = _named("remote_environment:RemoteEnvironment")(
        task, interpreter, **settings
    )
    return world


def open_world(
    task: str,
    *,
    embodiment: str | None = None,
    interpreter: Interpreter | None = None,
    **settings: Any,
) -> World:
    """Builds the world of a task; bound with `functools.partial`, it can be sent to workers.

    Args:
        task: Name of a task, `module:Class` of the user's own, or an environment in another
            interpreter.
        embodiment: Another arm than that of the workcell, see `arm_cell`.
        interpreter: Where an environment of another interpreter runs; if None, in this one.
        settings: Arguments of `TaskEnvironment`, for third-party tasks only cameras, image_size,
            control_hz, frame_hz, time_limit_s and robot_model.

    Raises:
        ValueError: The task is unknown, a setting is out of range, or a package is not installed.
    """
    if is_remote_task(task):
        check_own_arm(task, embodiment)
        return open_remote(task, interpreter or Interpreter(), **settings)
    check_interpreter(task, interpreter)
    if is_third_party(task):
        check_own_arm(task, embodiment)
        return open_third_party(task, **settings)
    if task not in TASKS and not is_user_task(task):
        raise unknown_name("task", task, [*TASKS, *THIRD_PARTY_TASKS])
    return make_environment(task, embodiment=embodiment, **settings)


def check_own_arm(what: str, embodiment: str | None) -> None:
    """Checks that no other arm is chosen where there is none to choose.

    Raises:
        ValueError: One is.
    """
    if embodiment is not None:
        raise ValueError(
            f"task.embodiment is {embodiment!r}, but {what} has arms of its own; allowed: null."
        )


def check_interpreter(task: str, interpreter: Interpreter | None) -> None:
    """Checks that no interpreter is chosen for a task of this one.

    Raises:
        ValueError: One is.
    """
    if interpreter is not None and interpreter.python is not None:
        raise ValueError(
            f"task.python is {interpreter.python!r}, but {task} runs in Stringline's interpreter; "
            "allowed: null."
        )


def make_any_expert(task: str, *, varied: bool = True) -> Expert[Any]:
    """Builds the expert of a task, see `make_expert`.

    Third-party experts without variation keep one pace.

    Raises:
        ValueError: The task has no expert.
    """
    if is_remote_task(task):
        remote: Expert[Any] = _named("remote_environment:RemoteExpert")(varied=varied)
        return remote
    if not is_third_party(task):
        return make_expert(task, varied=varied)
    if task not in GYM_ALOHA:
        raise unknown_name("expert for the task", task, GYM_ALOHA)
    expert = _named(GYM_ALOHA[task])
    built: Expert[Any] = expert() if varied else expert(paces=(1.0, 1.0))
    return built


def instruction_of(
    task: str,
    options: Mapping[str, Any],
    embodiment: str | None = None,
    interpreter: Interpreter | None = None,
) -> str:
    """Returns the instruction of a task, after a check of its options.

    No world is built for it, except in another interpreter.

    Raises:
        ValueError: The task, its arm or an option is unknown, or a package is not installed.
    """
    if is_third_party(task):
        check_own_arm(task, embodiment)
        _named("third_party_environment:check_no_options")(task, options)
        if is_remote_task(task):
            facts = _named("remote_environment:remote_facts")(task, interpreter or Interpreter())
            return str(facts.instruction)
        place = "gym_aloha:instruction" if task in GYM_ALOHA else "aloha_sim:instruction"
        return str(_named(place)(task))
    plain = make_task(task, embodiment=embodiment)
    plain.configure(**options)
    return plain.instruction


def _named(place: str) -> Any:
    """Returns what a module of this folder defines, by `module:name`; imports the module."""
    return resolve_name(f"{__package__}.{place}")
