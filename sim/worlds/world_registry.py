"""Worlds by the names of their tasks: this project's, third-party ones and those of the user."""

from collections.abc import Mapping
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.environment.environment import make_environment
from stringline.sim.experts.expert_registry import Expert, make_expert
from stringline.sim.rollout.world_interface import World
from stringline.sim.tasks.task_registry import TASKS, is_user_task, make_task
from stringline.sim.worlds import aloha_sim
from stringline.sim.worlds.aloha_sim import AlohaSim
from stringline.sim.worlds.gym_aloha import TASK_MODELS, GymAloha
from stringline.sim.worlds.gym_aloha_experts import (
    GymAlohaExpert,
    InsertionExpert,
    TransferCubeExpert,
)
from stringline.sim.worlds.third_party_environment import ThirdPartyEnvironment, check_no_options

THIRD_PARTY_EXPERTS: Mapping[str, type[GymAlohaExpert]] = {
    expert.task: expert for expert in (TransferCubeExpert, InsertionExpert)
}
# An installed aloha_sim has further tasks.
THIRD_PARTY_TASKS: tuple[str, ...] = (*TASK_MODELS, f"{aloha_sim.PREFIX}hand_over_banana")


def is_third_party(task: str) -> bool:
    """Returns whether a name belongs to a task of a third-party environment."""
    return task in TASK_MODELS or task.startswith(aloha_sim.PREFIX)


def open_third_party(
    task: str, *, segmentation: bool = False, **settings: Any
) -> ThirdPartyEnvironment:
    """Builds a third-party environment; for the settings see `ThirdPartyEnvironment`.

    Raises:
        ValueError: The package is not installed or has another version, the task is unknown, or a
            setting is out of range.
    """
    if segmentation:
        raise ValueError(f"segments=true; the images of the third-party task {task} have none.")
    adapter = GymAloha(task) if task in TASK_MODELS else AlohaSim(task)
    try:
        return ThirdPartyEnvironment(adapter, **settings)
    except ValueError:
        adapter.close()
        raise


def open_world(task: str, **settings: Any) -> World:
    """Builds the world of a task; bound with `functools.partial`, it can be sent to workers.

    Args:
        task: Name of a task, or `module:Class` of the user's own.
        settings: Arguments of `TaskEnvironment`, for third-party tasks only cameras, image_size,
            control_hz, frame_hz, time_limit_s and robot_model.

    Raises:
        ValueError: The task is unknown, a setting is out of range, or a package is not installed.
    """
    if is_third_party(task):
        return open_third_party(task, **settings)
    if task not in TASKS and not is_user_task(task):
        raise unknown_name("task", task, [*TASKS, *THIRD_PARTY_TASKS])
    return make_environment(task, **settings)


def make_any_expert(task: str, *, varied: bool = True) -> Expert[Any]:
    """Builds the expert of a task, see `make_expert`.

    Third-party experts without variation keep one pace.

    Raises:
        ValueError: The task has no expert.
    """
    if not is_third_party(task):
        return make_expert(task, varied=varied)
    if task not in THIRD_PARTY_EXPERTS:
        raise unknown_name("expert for the task", task, THIRD_PARTY_EXPERTS)
    expert = THIRD_PARTY_EXPERTS[task]
    return expert() if varied else expert(paces=(1.0, 1.0))


def instruction_of(task: str, options: Mapping[str, Any]) -> str:
    """Returns the instruction of a task, after a check of its options without a world.

    Raises:
        ValueError: The task or an option is unknown, or a package is not installed.
    """
    if task in TASK_MODELS:
        check_no_options(task, options)
        return TASK_MODELS[task].instruction
    if is_third_party(task):
        check_no_options(task, options)
        return aloha_sim.instruction(task)
    plain = make_task(task)
    plain.configure(**options)
    return plain.instruction
