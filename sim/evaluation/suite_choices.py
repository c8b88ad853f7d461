"""Suites and lists of tasks on the command lines of training, evaluation and comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stringline.sim.evaluation.suites import Suite

TASKS = "tasks"


def with_suites(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in the form that Hydra reads.

    `suite=PATH.yaml` becomes `suite_file=PATH.yaml`, because Hydra would look for the path among
    the shipped suites. `task=[NAME,NAME]` becomes `tasks=[NAME,NAME]`, because of several choices
    of a group Hydra merges all and keeps the last.
    """
    return [_for_hydra(argument) for argument in arguments]


def _for_hydra(argument: str) -> str:
    key, _, value = argument.partition("=")
    if key == "suite" and value.endswith((".yaml", ".yml")):
        return f"suite_file={value}"
    if key == "task" and value.startswith("["):
        return f"{TASKS}={value}"
    return argument


def chosen_suite(
    plain: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    of_lists: Mapping[str, int] | None = None,
) -> Suite | None:
    """Returns the suite of the settings on the chosen seeds; None for a single task.

    Args:
        plain: The settings: at most one of `suite` (a mapping), `suite_file` and `tasks` (names),
            and `seeds` and `first_seed`; what is null or missing is not chosen.
        overrides: The command line, `key=value`.
        of_lists: `seeds` and `first_seed` of entries with a list of seeds, where they are not those
            of `plain`; missing ones change nothing. None: those of `plain`.

    Raises:
        ValueError: There are two of them, or settings of a single task beside one; the suite is not
            valid, or a task is unknown.
    """
    given = [name for name in ("suite", "suite_file", TASKS) if plain.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise ValueError(f"Both {given[0]} and {given[1]} are given; allowed: one of them.")
    for override in overrides:
        if override.lstrip("+~").startswith(("task=", "task.", "shift=", "looks=")):
            raise ValueError(
                f"{override} is for a single task, but each entry of a suite has its own settings. "
                f"Omit {override} or the suite."
            )
    suite = _suite(plain, overrides)
    for entry in suite.entries:
        entry.settings()  # An unknown task is found before anything runs.
    lists = plain if of_lists is None else of_lists
    return suite.with_seeds(
        plain.get("seeds"),
        plain.get("first_seed"),
        of_lists=(lists.get("seeds"), lists.get("first_seed")),
    )


def suite_of_training(settings: Mapping[str, Any], overrides: Sequence[str]) -> Suite | None:
    """Returns the suite of the evaluations during training; None for a single task or none.

    Of entries with a list of seeds, only the command line changes the seeds.

    Args:
        settings: Those of `stringline-train`.
        overrides: The command line, `key=value`.

    Raises:
        ValueError: See `chosen_suite`.
    """
    evaluation = settings["evaluation"]
    given = {override.lstrip("+").partition("=")[0] for override in overrides}
    of_lists = {
        name: evaluation[name] for name in ("seeds", "first_seed") if f"evaluation.{name}" in given
    }
    return chosen_suite({**settings, **evaluation}, overrides, of_lists=of_lists)


def _suite(plain: Mapping[str, Any], overrides: Sequence[str]) -> Suite:
    if plain.get("suite_file") is not None:
        return Suite.read(Path(plain["suite_file"]))
    if (tasks := plain.get(TASKS)) is not None:
        if not isinstance(tasks, list):
            raise ValueError(f"tasks is {tasks!r}; allowed: a list such as [fmb_1,fmb_2].")
        return Suite.parse(TASKS, {"entries": [{"task": task} for task in tasks]})
    names = [name for key, _, name in (o.partition("=") for o in overrides) if key == "suite"]
    return Suite.parse((names or ["given"])[0], plain["suite"])
