"""The world of a task by its name, whether we wrote it or somebody else did."""

from collections.abc import Mapping
from typing import Any

from stringline.datasets.names import unknown_name
from stringline.sim.evaluation import open_world
from stringline.sim.experts.expert import Expert, make_expert
from stringline.sim.peers.catalogue import PEER_TASKS, is_peer, make_peer_expert, open_peer, peer_instruction
from stringline.sim.peers.world import refuse_options
from stringline.sim.tasks.catalogue import TASKS, make_task
from stringline.sim.tasks.imported import is_imported
from stringline.sim.world import World

TASK_SETTINGS = ("name", "cameras", "image_size", "control_hz", "frame_hz", "time_limit_s", "options")
"""What a choice of `configs/task` says; another name, such as `option`, would change nothing without a word."""


def open_any_world(task: str, **settings: Any) -> World:
    """Builds the world of a task. Bound with `functools.partial`, it can be sent to workers.

    Args:
        task: Its name: one of ours, a peer's, or `module:Class` of the user's own.
        settings: The other arguments of `evaluation.open_world`: cameras, image_size, control_hz, frame_hz, time_limit_s and
            robot_model.

    Raises:
        ValueError: There is no such task, a setting is out of range, or a peer is not installed.
    """
    if is_peer(task):
        return open_peer(task, **settings)
    if task not in TASKS and not is_imported(task):
        raise unknown_name("task", task, [*TASKS, *PEER_TASKS])
    return open_world(task, **settings)


def make_any_expert(task: str, *, varied: bool = True) -> Expert[Any]:
    """Builds the expert of a task.

    Args:
        task: Its name, as for `open_any_world`.
        varied: See `make_expert`; a peer's expert that does not vary keeps one pace.

    Raises:
        ValueError: There is none.
    """
    return make_peer_expert(task, varied=varied) if is_peer(task) else make_expert(task, varied=varied)


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
        raise ValueError(f"task.options is {options!r}; allowed: a mapping, such as {{table_height: 0.02}}.")


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
