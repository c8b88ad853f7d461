"""The task of a checkpoint, which commands that run it take as their default."""

import logging
from collections.abc import Sequence
from pathlib import Path

import stringline
from stringline.encoders.training.checkpoint import load_description
from stringline.policies.checkpoints.load import find_checkpoint, is_address
from stringline.sim.tasks.task_registry import is_user_task

logger = logging.getLogger(__name__)

# Options that choose a task, or take the place of one.
CHOICES = ("task", "task.name", "suite", "suite_file")


def training_record(checkpoint: str | Path) -> dict[str, object]:
    """Returns the description of a checkpoint's training; empty for the address of a server."""
    if is_address(str(checkpoint)):
        return {}
    record = load_description(find_checkpoint(checkpoint)).get("training")
    return dict(record) if isinstance(record, dict) else {}


def trained_tasks(checkpoint: str | Path) -> tuple[str, ...]:
    """Returns the names of the tasks of the training data; empty if unknown.

    Raises:
        ValueError: The checkpoint is missing or broken.
    """
    tasks = training_record(checkpoint).get("tasks")
    return tuple(map(str, tasks)) if isinstance(tasks, dict) else ()


def warn_of_other_task(checkpoint: str | Path, task: str) -> None:
    """Logs a warning if the training data of a checkpoint do not contain a task."""
    trained = trained_tasks(checkpoint)
    if trained and task not in trained:
        logger.warning(
            "%s was trained on %s; the chosen task is %s.", checkpoint, " and ".join(trained), task
        )


def with_trained_task(arguments: Sequence[str]) -> list[str]:
    """Adds `task=NAME` to a command line that names a checkpoint of one task, but no task.

    Errors of the checkpoint are left to the command, which reports them.
    """
    parts = [argument.lstrip("+~").partition("=") for argument in arguments[1:]]
    given = {key: value for key, _, value in parts}
    if "checkpoint" not in given or any(name in given for name in CHOICES):
        return list(arguments)
    try:
        tasks = trained_tasks(given["checkpoint"])
    except ValueError:
        return list(arguments)
    added = [override for task in tasks[:1] if (override := task_choice(task))]
    return [*arguments, *(added if len(tasks) == 1 else [])]


def task_choice(task: str) -> str:
    """Returns the override that chooses a task; empty for tasks that cannot be simulated."""
    if is_user_task(task):
        return f"task.name={task}"
    known = Path(stringline.__file__).parent / "configs" / "task" / f"{task}.yaml"
    return f"task={task}" if known.is_file() else ""
