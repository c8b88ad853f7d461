"""The recipe of a command: its choices and options as plain data, to store beside its results."""

from typing import Any

from hydra.core.hydra_config import HydraConfig

PLACES = ("output", "dataset.path")
"""Options that name a place on a disk, on which no result depends."""


def command_recipe() -> dict[str, Any]:
    """Returns `choices`, the choice of each group, and `options`, as given on the command line.

    It is called within the task of a command, see `run`.
    """
    hydra = HydraConfig.get()
    choices = {
        str(group): name
        for group, name in hydra.runtime.choices.items()
        if name is not None and not str(group).startswith("hydra/")
    }
    given = [option for option in hydra.overrides.task if option.partition("=")[0] not in PLACES]
    return {"choices": choices, "options": [str(option) for option in given]}
