"""Parts of a model by name: `observation_encoder`, `denoiser.blocks.0`, or with wildcards."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from stringline.datasets.contract.argument_checks import unknown_name

# Levels of parts that an error message searches for the nearest names; deeper parts match too.
DEPTH = 2


class PartPatterns:
    """Patterns of names of parts, each for the part and everything in it.

    A pattern is the name of a module or parameter, in which `*` stands for any characters, dots
    included: `denoiser`, `denoiser.blocks.*.cross_q`, `*.bias`.
    """

    def __init__(self, setting: str, patterns: Sequence[str], model: nn.Module) -> None:
        """Checks the patterns; `setting` is the option that contains them, for messages.

        Raises:
            ValueError: A pattern matches no parameter of the model.
        """
        self._patterns = [str(pattern) for pattern in patterns]
        names = [name for name, _ in model.named_parameters()]
        for pattern in self._patterns:
            if not any(_within(name, pattern) for name in names):
                raise unknown_name(f"part of the model for {setting}", pattern, part_names(names))

    def index(self, name: str) -> int | None:
        """Returns the number of the last pattern that matches a name; None: no pattern does."""
        found = [number for number, pattern in enumerate(self._patterns) if _within(name, pattern)]
        return found[-1] if found else None

    def __contains__(self, name: str) -> bool:
        return self.index(name) is not None


def part_names(names: Iterable[str], depth: int = DEPTH) -> set[str]:
    """Returns the names of the first levels of parts that contain the named tensors."""
    return {".".join(name.split(".")[:level]) for name in names for level in range(1, depth + 1)}


def _within(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
