"""The versions on which episodes depend: of the task, its physics, MuJoCo, torch and Stringline."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from stringline.datasets.command.installed_version import installed_version
from stringline.sim.environment.physics_digest import physics_digest
from stringline.sim.tasks.task_registry import task_class
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import is_third_party

TASK_VERSION = "task_version"
# Names in results and recipes. Results of earlier code lack them.
VERSIONS = (TASK_VERSION, "physics", "mujoco", "torch", "stringline")


def world_versions(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the versions on which a demonstration depends, by their names in `VERSIONS`.

    Third-party tasks have neither a version nor a digest: Stringline requires one version of their
    packages.

    Args:
        task: Name of the task.
        options: Options of the episodes, of which `version` chooses the version of the task.

    Raises:
        ValueError: The task, or its version, does not exist.
    """
    packages = {"mujoco": version("mujoco"), "stringline": installed_version()}
    if is_third_party(task):
        return packages
    chosen = task_class(task).version_of(options)
    return {TASK_VERSION: chosen, "physics": physics_digest(task, chosen), **packages}


def result_versions(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the versions on which the result of a policy depends; see `world_versions`."""
    return {**world_versions(task, options), "torch": version("torch")}


def task_options(task: TaskSettings) -> dict[str, object]:
    """Returns name, version and frame rate of a task by option, for `TrainingRecord.warn`."""
    found: dict[str, object] = {"task": task.name, "task.frame_hz": task.frame_hz}
    if not is_third_party(task.name):
        found["task.options.version"] = task_class(task.name).version_of(task.options)
    return found
