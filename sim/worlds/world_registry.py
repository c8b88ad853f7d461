"""Worlds by the name of their task: our tasks, third-party environments, and modules of the user."""

from collections.abc import Mapping
from typing import Any

from stringline.datasets.contract.arguments import unknown_name
from stringline.sim.environment.factory import make_environment
from stringline.sim.experts.expert import Expert, make_expert
from stringline.sim.rollout.world_interface import World
from stringline.sim.tasks.imported import is_imported
from stringline.sim.tasks.task_catalogue import TASKS, make_task
from stringline.sim.worlds import aloha_sim
from stringline.sim.worlds.aloha_sim import AlohaSim
from stringline.sim.worlds.gym_aloha import KINDS, GymAloha
from stringline.sim.worlds.third_party_world import PeerWorld, refuse_options
from stringline.sim.worlds.transfer_cube import TransferCubeExpert

PEER_TASKS: tuple[str, ...] = (
    *KINDS,
    f"{aloha_sim.PREFIX}hand_over_banana",
)  # And aloha_sim's others, which it lists itself.


def is_peer(task: str) -> bool:
    """Says whether a name is of a task that others wrote."""
    return task in KINDS or task.startswith(aloha_sim.PREFIX)


def open_peer(task: str, **settings: Any) -> PeerWorld:
    """Builds the world of a peer's task.

    Args:
        task: Its name, one for which `is_peer` holds.
        settings: The other arguments of `PeerWorld`.

    Raises:
        ValueError: The peer is not installed, or in another version; there is no such task; a
            setting is out of range.
    """
    peer = GymAloha(task) if task in KINDS else AlohaSim(task)
    try:
        return PeerWorld(peer, **settings)
    except ValueError:
        peer.close()
        raise


def peer_instruction(task: str) -> str:
    """Returns what a person would say to have a peer's task done.

    Raises:
        ValueError: The peer is not installed, or there is no such task.
    """
    return KINDS[task].instruction if task in KINDS else aloha_sim.instruction(task)


def make_peer_expert(task: str, *, varied: bool = True) -> TransferCubeExpert:
    """Builds our expert of a peer's task.

    Args:
        task: Its name.
        varied: Whether each episode has a pace of its own.

    Raises:
        ValueError: There is none.
    """
    if task != TransferCubeExpert.task:
        raise unknown_name("expert for the task", task, [TransferCubeExpert.task])
    return TransferCubeExpert() if varied else TransferCubeExpert(paces=(1.0, 1.0))


TASK_SETTINGS = (
    "name",
    "cameras",
    "image_size",
    "control_hz",
    "frame_hz",
    "time_limit_s",
    "options",
)
"""What a choice of `configs/task` says; another name, such as `option`, would change nothing without a word."""


def open_world(task: str, **settings: Any) -> World:
    """Builds the world of a task. Bound with `functools.partial`, it can be sent to workers.

    Args:
        task: Its name: one of ours, a peer's, or `module:Class` of the user's own.
        settings: The other arguments of `make_environment`: cameras, image_size, control_hz,
            frame_hz, time_limit_s and robot_model.

    Raises:
        ValueError: There is no such task, a setting is out of range, or a peer is not installed.
    """
    if is_peer(task):
        return open_peer(task, **settings)
    if task not in TASKS and not is_imported(task):
        raise unknown_name("task", task, [*TASKS, *PEER_TASKS])
    return make_environment(task, **settings)


def make_any_expert(task: str, *, varied: bool = True) -> Expert[Any]:
    """Builds the expert of a task.

    Args:
        task: Its name, as for `open_world`.
        varied: See `make_expert`; a peer's expert that does not vary keeps one pace.

    Raises:
        ValueError: There is none.
    """
    return (
        make_peer_expert(task, varied=varied) if is_peer(task) else make_expert(task, varied=varied)
    )


def demand_task_settings(task: Mapping[str, Any]) -> None:
    """Does nothing if the settings of a task are such.

    Args:
        task: As in `configs/task`; some of them may be missing.

    Raises:
        ValueError: There is no such setting, or the options are no mapping.
    """
    for name in task:
        if name not in TASK_SETTINGS:
            raise unknown_name("setting of a task", str(name), TASK_SETTINGS)
    if not isinstance(options := task.get("options", {}), Mapping):
        raise ValueError(
            f"task.options is {options!r}; allowed: a mapping, such as {{table_height: 0.02}}."
        )


def instruction_of(task: str, options: Mapping[str, Any]) -> str:
    """Returns what a person would say to have a task done, and looks at its options before any world is built.

    Raises:
        ValueError: There is no such task or option, or a peer is not installed.
    """
    if is_peer(task):
        refuse_options(task, options)
        return peer_instruction(task)
    plain = make_task(task)
    plain.configure(**options)
    return plain.instruction
