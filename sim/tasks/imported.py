"""Tasks that live outside this package, in a module of their user: named `module:Class`."""

from importlib import import_module, util

from stringline.datasets.contract.arguments import unknown_name
from stringline.sim.tasks.tabletop import TabletopTask


def is_imported(name: str) -> bool:
    """Says whether a name is of a task outside this package."""
    return ":" in name


def import_task(name: str) -> type[TabletopTask]:
    """Returns the class of a task.

    Args:
        name: `module:Class`; the module is found as Python finds it, such as in a folder of
            PYTHONPATH.

    Raises:
        ValueError: There is no such module, it has no such task, or the task calls itself
            otherwise.
    """
    where, _, kind = name.partition(":")
    if not all(part.isidentifier() for part in (*where.split("."), kind)):
        raise ValueError(
            f"{name!r} names no task; allowed: the name of one of ours, or module:Class of your "
            f"own."
        )
    if not _exists(where):
        raise ValueError(
            f"There is no module {where!r} on Python's path. Where it is in this folder: "
            f"PYTHONPATH=. COMMAND"
        )
    module = import_module(where)
    tasks = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, TabletopTask)
    }
    if kind not in tasks:
        raise unknown_name(
            f"task in {where}",
            kind,
            [key for key, value in tasks.items() if value.__module__ == where],
        )
    task = tasks[kind]
    if getattr(task, "name", None) != name:
        raise ValueError(
            f"{name} calls itself {getattr(task, 'name', None)!r}; its episodes are found by name "
            f"= {name!r}."
        )
    return task


def _exists(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # Not even the package that it would be in.
        return False
