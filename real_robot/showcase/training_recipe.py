"""The recipe with which `stringline-demo` trains: by default that of its task."""

from collections.abc import Sequence
from pathlib import Path

import stringline

GROUP = "training_recipe"


def with_training_recipe(arguments: Sequence[str]) -> list[str]:
    """Returns a command line with the recipe of its task, unless it names one or there is none.

    Hydra does not support this in the defaults of `configs/demo.yaml`: a file whose name contains
    the choice of another group must not override further groups.
    """
    if any(argument.partition("=")[0].lstrip("+~") == GROUP for argument in arguments):
        return list(arguments)
    tasks = [name for key, _, name in (one.partition("=") for one in arguments) if key == "task"]
    recipes = Path(stringline.__file__).parent / "configs" / GROUP
    # Before the choices of the command line, which replace those of the recipe.
    recipe = [f"{GROUP}={name}" for name in tasks[-1:] if (recipes / f"{name}.yaml").is_file()]
    return [*recipe, *arguments]
