"""The recipe with which `stringline-demo` trains: by default that of its task."""

import logging
from collections.abc import Sequence
from pathlib import Path

import stringline

logger = logging.getLogger(__name__)

GROUP = "training_recipe"


def with_training_recipe(arguments: Sequence[str]) -> list[str]:
    """Adds the training recipe of the task to a command line that names none, and logs it.

    Hydra does not support this in the defaults of `configs/demo.yaml`: a file whose name contains
    the choice of another group must not override further groups.
    """
    if any(argument.partition("=")[0].lstrip("+~") == GROUP for argument in arguments):
        return list(arguments)
    tasks = [name for key, _, name in (one.partition("=") for one in arguments) if key == "task"]
    recipes = Path(stringline.__file__).parent / "configs" / GROUP
    # Before the choices of the command line, which replace those of the recipe.
    recipe = [f"{GROUP}={name}" for name in tasks[-1:] if (recipes / f"{name}.yaml").is_file()]
    for choice in recipe:
        logger.info(
            "The training uses %s, the recipe of the task; %s=none trains with the defaults.",
            choice,
            GROUP,
        )
    return [*recipe, *arguments]
