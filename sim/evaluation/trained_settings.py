"""Commands that run a checkpoint in a world take task, frame rate and execution from its record."""

from collections.abc import Mapping, Sequence
from typing import Any

from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.extensions.trust import Trust, packages_of
from stringline.policies.checkpoints.training_record import (
    TrainingRecord,
    given_record,
    given_values,
    word,
)
from stringline.sim.tasks.task_registry import (
    TASKS,
    code_of_task,
    is_remote_task,
    is_user_task,
    task_class,
)


def with_trained_settings(arguments: Sequence[str], *, contract: bool = False) -> list[str]:
    """Adds to the arguments of a command what they lack and the record of their checkpoint has.

    Errors of the checkpoint are left to the command, which reports them.

    Args:
        arguments: The arguments.
        contract: Whether to add cameras and rate of the policy's contract, and no other arm of the
            task, for commands that run a robot.

    Raises:
        ValueError: The record has several tasks, one that this installation lacks, or one of a
            package that the user does not trust.
    """
    given = given_values(arguments)
    record = given_record(given)
    if record is None:
        return list(arguments)
    trust = Trust(f"The checkpoint {given['checkpoint']}", frozenset(packages_of(arguments)))
    added = [*_task_overrides(record, given, trust), *record.execution_overrides(given)]
    if contract:
        added += _contract_overrides(record, given)
    elif not {"suite", "suite_file", "tasks"} & set(given):
        added += _arm_overrides(record, given)
    return [*arguments, *added]


def _task_overrides(record: TrainingRecord, given: Mapping[str, str], trust: Trust) -> list[str]:
    """Returns the overrides with task and frame rate."""
    if {"suite", "suite_file", "tasks"} & set(given):
        return []
    named = "task" in given or "task.name" in given
    chosen = [_choice(record, trust)] if record.tasks and not named else []
    chosen += _rule_overrides(record, given)
    if len(record.frame_rates) == 1 and "task.frame_hz" not in given:
        chosen.append(f"task.frame_hz={record.frame_rates[0]}")
    return chosen


def _rule_overrides(record: TrainingRecord, given: Mapping[str, str]) -> list[str]:
    """Returns the overrides with the rule of the task in the training, if it is not the usual."""
    task = _task(record, given)
    options = {f"task.options.{name}": value for name, value in recorded_rule(record, task).items()}
    return [f"++{name}={word(value)}" for name, value in options.items() if name not in given]


def _arm_overrides(record: TrainingRecord, given: Mapping[str, str]) -> list[str]:
    """Returns the override with the arm of the demonstrations, if it is not the usual one."""
    arm = record.embodiment(_task(record, given))
    return [] if arm is None or "task.embodiment" in given else [f"++task.embodiment={arm}"]


def _task(record: TrainingRecord, given: Mapping[str, str]) -> str:
    """Returns the task that a command line gives, or else that of the record."""
    return given.get("task.name", given.get("task", next(iter(record.tasks), "")))


def recorded_rule(record: TrainingRecord, task: str) -> dict[str, Any]:
    """Returns the options of a task that chose its rule in a training: starts and criterion.

    Options with their usual value, or with several values in the training, are left out, and so are
    all of tasks of other packages.
    """
    if task not in TASKS:
        return {}
    found: dict[str, Any] = {}
    for name, usual in task_class(task).rule_of({}).items():
        values = record.task_option(task, name)
        if len(values) == 1 and values[0] != usual:
            found[name] = values[0]
    return found


def _contract_overrides(record: TrainingRecord, given: Mapping[str, str]) -> list[str]:
    """Returns the overrides with cameras and rate of the contract."""
    if record.contract is None:
        return []
    cameras = ",".join(camera.name for camera in record.contract.cameras)
    options = {"task.cameras": f"[{cameras}]", "task.control_hz": record.contract.control_hz}
    return [f"{name}={value}" for name, value in options.items() if name not in given]


def _choice(record: TrainingRecord, trust: Trust) -> str:
    """Returns the override that chooses the task of the record."""
    task, *others = record.tasks
    recordings = (
        f"stringline-eval checkpoint={record.where} dataset=STORE measures it on recordings."
    )
    if others:
        choose = f"Choose one: task={task}." if any(map(is_simulated, record.tasks)) else recordings
        raise ValueError(f"{record.where} was trained on {', '.join(record.tasks)}. {choose}")
    if (code := code_of_task(task)) is not None:
        trust.check(code)
    try:
        return task_override(task)
    except ValueError as error:
        raise ValueError(
            f"{record.where} was trained on {task}, which has no simulation here. {error} Install "
            "it, or choose another task: task=NAME. stringline-deploy with arms needs no "
            f"simulation: task.name={task}. {recordings}"
        ) from error


def is_simulated(task: str) -> bool:
    """Returns whether a task has a name of the simulation; those of users are not looked up."""
    return is_user_task(task) or is_remote_task(task) or task in choice_names(CONFIGS, "task")


def task_override(task: str) -> str:
    """Returns the override that chooses a task.

    Raises:
        ValueError: There is no such task.
    """
    if is_user_task(task):
        task_class(task)
        return f"task.name={task}"
    if not is_remote_task(task) and task not in (known := choice_names(CONFIGS, "task")):
        raise unknown_name("task", task, known)
    return f"task={task}"
