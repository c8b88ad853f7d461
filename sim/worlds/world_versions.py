"""The versions on which episodes depend: rule and physics of the task, MuJoCo, torch, Stringline.

The version of the physics is a digest of the compiled model of a task and of the parameters of its
success criterion.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import mujoco
import numpy as np

from stringline.datasets.command.installation import installed_version
from stringline.sim.environment.environment import make_environment
from stringline.sim.interpreters.environment_process import Interpreter
from stringline.sim.tasks import handling, success
from stringline.sim.tasks.tabletop import SPREAD, STRICT, TabletopTask, spread_of
from stringline.sim.tasks.task_registry import is_remote_task, task_class
from stringline.sim.worlds.remote_environment import remote_facts
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import is_third_party

DIGITS = 12  # Hexadecimal digits of a digest.
# Numbers of a model are rounded to so many digits, because compilers round the last ones otherwise.
SIGNIFICANT = 6
# Smaller numbers are rounding errors, which depend on the processor; the smallest inertia is 1e-11.
LEAST = 1e-14
ARRAYS = {
    "body": ("mass", "inertia", "ipos", "iquat", "pos", "quat", "gravcomp"),
    "jnt": ("type", "pos", "axis", "range", "stiffness", "solref", "solimp"),
    "dof": ("damping", "armature", "frictionloss"),
    "actuator": ("gainprm", "biasprm", "ctrlrange", "forcerange", "gear"),
    "eq": ("data", "solref", "solimp"),
    "geom": (
        *("type", "size", "pos", "quat", "contype", "conaffinity", "condim", "friction"),
        *("solref", "solimp", "margin", "gap", "priority"),
    ),
    "mesh": ("vert",),
}
OPTIONS = (
    *("timestep", "gravity", "integrator", "cone", "impratio", "solver", "iterations"),
    *("tolerance", "noslip_iterations", "disableflags", "enableflags"),
)
# What chooses the rule of the task, and does not change it.
CHOICES = ("varied_starts", "may_be_strict", "drop_speed", "any_arm")


@cache
def physics_digest(
    task: str, varied_starts: bool, strict: bool, embodiment: str | None = None
) -> str:
    """Returns the digest of a task with or without varied starts and strict criterion.

    It covers the arrays of the compiled model that affect motion, and all constants of the modules
    and classes that define the task, of which the success criterion and the ranges of the start
    are parts. Appearance is not covered.

    Raises:
        ValueError: There is no such task, or it cannot have this arm.
    """
    world = make_environment(task, cameras=(), embodiment=embodiment)
    try:
        found = {
            "model": dict(_model_numbers(world.physics.model.ptr)),
            "parameters": _parameters(type(world.task), varied_starts, strict),
        }
    finally:
        world.close()
    text = json.dumps(found, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _model_numbers(model: mujoco.MjModel) -> Iterator[tuple[str, list[str]]]:
    """Yields arrays and options of a model as text; of shapes, those that can collide."""
    colliding = (model.geom_contype | model.geom_conaffinity) != 0
    for kind, names in ARRAYS.items():
        for name in names:
            values = getattr(model, f"{kind}_{name}")
            yield f"{kind}_{name}", _text(values[colliding] if kind == "geom" else values)
    for name in OPTIONS:
        yield name, _text(np.asarray(getattr(model.opt, name)))


def _text(values: Any) -> list[str]:
    numbers = np.asarray(values, float).ravel()
    return [f"{value:.{SIGNIFICANT}g}" for value in np.where(abs(numbers) < LEAST, 0.0, numbers)]


def _parameters(task: type[TabletopTask], varied_starts: bool, strict: bool) -> dict[str, Any]:
    """Returns the constants of the modules and classes of a task by name."""
    # The base classes define neither success nor the places of objects.
    own = task.__mro__[: task.__mro__.index(TabletopTask)]
    found = _constants(vars(success))
    for each in reversed(own):
        if each.__module__ != TabletopTask.__module__:
            found |= _constants(vars(sys.modules[each.__module__]))
        found |= {name: value for name, value in vars(each).items() if _is_plain(value)}
    if varied_starts:
        found["start"] = repr(task.starts_within())
    if strict:
        found["judge"] = {**_constants(vars(handling)), "drop_speed": task.drop_speed}
    return {
        name: value
        for name, value in found.items()
        if name not in CHOICES and not name.startswith("__")
    }


def _constants(names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if name.isupper() and _is_plain(value)}


def _is_plain(value: object) -> bool:
    """Returns whether a value is a number, a text, or a tuple of them."""
    if isinstance(value, tuple):
        return all(_is_plain(each) for each in value)
    return isinstance(value, bool | int | float | str)


RULE = (SPREAD, STRICT)
EMBODIMENT = "task.embodiment"
# Names in results and recipes.
VERSIONS = (*RULE, "physics", "mujoco", "torch", "stringline")


def world_versions(
    task: str,
    options: Mapping[str, Any],
    embodiment: str | None = None,
    interpreter: Interpreter | None = None,
) -> dict[str, Any]:
    """Returns the versions on which a demonstration depends, by their names in `VERSIONS`.

    Third-party tasks have neither a rule nor a digest: Stringline requires one version of their
    packages. In another interpreter those of its packages count, as `environment.<package>`.

    Args:
        task: Name of the task.
        options: Options of the episodes, of which `start_spread` and `strict` choose the rule.
        embodiment: Another arm than that of the workcell.
        interpreter: Where an environment of another interpreter runs.

    Raises:
        ValueError: There is no such task, or it does not have this rule.
    """
    if is_remote_task(task):
        facts = remote_facts(task, interpreter or Interpreter())
        return {**facts.versions, "stringline": installed_version()}
    packages = {"mujoco": version("mujoco"), "stringline": installed_version()}
    if is_third_party(task):
        return packages
    rule = task_class(task).rule_of(options)
    varied_starts = spread_of(rule[SPREAD]).highest > 0
    digest = physics_digest(task, varied_starts, rule[STRICT], embodiment)
    return {**rule, "physics": digest, **packages}


def result_versions(
    task: str,
    options: Mapping[str, Any],
    embodiment: str | None = None,
    interpreter: Interpreter | None = None,
) -> dict[str, Any]:
    """Returns the versions on which the result of a policy depends; see `world_versions`."""
    packages = world_versions(task, options, embodiment, interpreter)
    return {**packages, "torch": version("torch")}


def task_options(task: TaskSettings) -> dict[str, object]:
    """Returns name, rule and frame rate of a task by option, for `TrainingRecord.warn`."""
    found: dict[str, object] = {"task": task.name, "task.frame_hz": task.frame_hz}
    found[EMBODIMENT] = task.embodiment
    if not is_third_party(task.name):
        rule = task_class(task.name).rule_of(task.options)
        found |= {f"task.options.{name}": value for name, value in rule.items()}
    return found
