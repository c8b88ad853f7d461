"""Suites: lists of tasks, in variations and on fixed seeds, that policies are measured on."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import yaml

import stringline
from stringline.datasets.contract.arguments import COUNT, POSITIVE, WHOLE, unknown_name
from stringline.sim.evaluation.runner import EVALUATION_SEED, evaluation_seeds

KEYS = ("task", "variation", "options", "seeds", "first_seed", "time_limit_s", "frame_hz")
_TASK_KEYS = ("time_limit_s", "frame_hz")


@dataclass(frozen=True)
class SuiteEntry:
    """One entry of a suite.

    Attributes:
        task: Name of the task, as in `configs/task`.
        seeds: Distinct.
        variation: What its user calls the options; empty for the plain task.
        options: What to change in the world.
        changes: Settings of the task that differ from its file: `time_limit_s`, `frame_hz`.
        counted: Whether the seeds are a number of them, counted from the first, and not a list.
    """

    task: str
    seeds: tuple[int, ...]
    variation: str
    options: Mapping[str, Any]
    changes: Mapping[str, float]
    counted: bool = True

    @classmethod
    def parse(cls, plain: object, where: str) -> Self:
        """Reads an entry.

        Args:
            plain: A mapping with `task`, and any others of `KEYS`.
            where: What to call it in a message.

        Raises:
            ValueError: It is no such mapping.
        """
        if not isinstance(plain, Mapping):
            raise ValueError(
                f"{where} is {plain!r}; allowed: a mapping such as {{task: hand_over_banana, "
                f"seeds: 50}}."
            )
        for key in plain:
            if key not in KEYS:
                raise unknown_name(f"setting of a suite's entry ({where})", str(key), KEYS)
        if not isinstance(task := plain.get("task"), str):
            raise ValueError(f"{where} names no task; give it one: task: hand_over_banana.")
        options = plain.get("options") or {}
        if not isinstance(options, Mapping):
            raise ValueError(
                f"{where}: options is {options!r}; allowed: a mapping such as {{table_height: "
                f"0.02}}."
            )
        variation = str(
            plain.get("variation") or ",".join(f"{name}={value}" for name, value in options.items())
        )
        if not re.fullmatch(r"[\w=.,+-]*", variation):
            raise ValueError(
                f"{where}: variation is {variation!r}; allowed: letters, digits and _ = . , + - "
                f"(it names a folder)."
            )
        seeds = _seeds(plain.get("seeds", 50), plain.get("first_seed"), where)
        changes = {
            key: _positive(plain[key], f"{where}: {key}") for key in _TASK_KEYS if key in plain
        }
        return cls(
            task,
            seeds,
            variation,
            dict(options),
            changes,
            counted=isinstance(plain.get("seeds", 50), int),
        )

    @property
    def name(self) -> str:
        """The task, and the variation after a dot: unique in its suite, and the name of the folder of its results."""
        return f"{self.task}.{self.variation}" if self.variation else self.task

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the task as `configs/task` has them, with the options and changes of this entry.

        Raises:
            ValueError: There is no such task.
        """
        folder = Path(stringline.__file__).parent / "configs" / "task"
        known = {path.stem: path for path in folder.glob("*.yaml")}
        if self.task not in known:
            raise unknown_name("task", self.task, known)
        plain = yaml.safe_load(known[self.task].read_text(encoding="utf-8"))
        return {
            **plain,
            **self.changes,
            "options": {**(plain.get("options") or {}), **self.options},
        }


@dataclass(frozen=True)
class Suite:
    """A list of entries.

    Attributes:
        name: What to call it.
        cells: Entries with distinct names.
    """

    name: str
    cells: tuple[SuiteEntry, ...]

    @classmethod
    def parse(cls, name: str, plain: object) -> Self:
        """Reads a suite.

        Args:
            name: What to call it.
            plain: A mapping whose only key `cells` is a list of entries.

        Raises:
            ValueError: It is no such mapping, or two entries are the same task in the same
                variation.
        """
        if (
            not isinstance(plain, Mapping)
            or list(plain) != ["cells"]
            or not isinstance(plain["cells"], list)
        ):
            raise ValueError(
                f"The suite {name} is no mapping of 'cells' to a list, such as cells: [{{task: "
                f"fmb_1, seeds: 50}}]."
            )
        cells = tuple(
            SuiteEntry.parse(entry, f"entry {number} of the suite {name}")
            for number, entry in enumerate(plain["cells"], 1)
        )
        if not cells:
            raise ValueError(f"The suite {name} has no entry.")
        if twice := [
            cell for cell, count in Counter(cell.name for cell in cells).items() if count > 1
        ]:
            raise ValueError(
                f"The suite {name} has {twice[0]} twice; give each its own `variation: NAME`."
            )
        return cls(name, cells)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a suite of the user's own from a YAML file.

        Raises:
            ValueError: The file is missing or holds no suite.
        """
        if not path.is_file():
            raise ValueError(f"There is no suite file {str(path)!r}.")
        try:
            plain = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}.") from error
        return cls.parse(path.stem, plain)

    def with_seeds(self, count: int | None, first: int | None) -> Self:
        """Returns the suite on other seeds.

        Args:
            count: How many in each entry; of a list, its first ones. None leaves the number as it
                is.
            first: Where to count from; None leaves it.

        Raises:
            ValueError: A list of seeds is too short, or is to be counted from somewhere.
        """
        return replace(self, cells=tuple(_with_seeds(cell, count, first) for cell in self.cells))


def _with_seeds(cell: SuiteEntry, count: int | None, first: int | None) -> SuiteEntry:
    count = len(cell.seeds) if count is None else count
    if cell.counted:
        return replace(
            cell, seeds=_seeds(count, cell.seeds[0] if first is None else first, cell.name)
        )
    if first is not None or count > len(cell.seeds):
        raise ValueError(
            f"{cell.name} has a list of {len(cell.seeds)} seeds; allowed: seeds of at most that "
            f"many, and no first_seed."
        )
    return replace(cell, seeds=cell.seeds[:count])


def _seeds(value: object, first: object, where: str) -> tuple[int, ...]:
    first = EVALUATION_SEED if first is None else first
    if isinstance(value, int) and isinstance(first, int) and value in COUNT and first in WHOLE:
        return tuple(evaluation_seeds(value, first))
    listed = value if isinstance(value, list) and all(seed in WHOLE for seed in value) else []
    if listed and len(set(listed)) == len(listed):
        return tuple(listed)
    raise ValueError(
        f"{where}: seeds is {value!r}, first_seed {first!r}; allowed: a number of at least 1 and "
        f"a first one of at least 0, "
        "or a list of distinct seeds."
    )


def _positive(value: object, where: str) -> float:
    if isinstance(value, int | float) and value in POSITIVE:
        return float(value)
    raise ValueError(f"{where} is {value!r}; allowed: numbers above 0.")
