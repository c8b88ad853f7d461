"""Instructions and splits of a LeRobotDataset: the task of each frame, and validation episodes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.contract.instructions import INSTRUCTIONS, PER_STEP
from stringline.datasets.files.limits import MOST_LINES_BYTES
from stringline.datasets.formats import parquet
from stringline.datasets.formats.confinement import inside, read_inside
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.guard import in_brief
from stringline.datasets.loading.held_out import SPLIT, TRAINING, VALIDATION

TASK_INDEX = "task_index"


class Instructions(NamedTuple):
    """The instruction of an episode, and what keeps further ones.

    Attributes:
        text: The instruction of most steps.
        arrays: `PER_STEP` if the instruction changes.
        extra: The instructions by their place, if they change.
        left_out: What the episode does not keep.
    """

    text: str
    arrays: Mapping[str, Array]
    extra: Mapping[str, Any]
    left_out: Mapping[str, str]


def instructions_of(root: Path, tasks: Sequence[str], numbers: Array | None) -> Instructions:
    """Returns the instructions of an episode with the given tasks.

    `numbers` (T,) are the tasks of the steps by their places in the table of tasks, if recorded.
    """
    if len(tasks) < 2:
        return Instructions("".join(tasks), {}, {}, {})
    if numbers is None:
        lost = {"tasks": "tasks after the first one; the frames do not name theirs"}
        return Instructions(tasks[0], {}, {}, lost)
    found, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    known = _task_table(root)
    try:
        texts = [known[int(number)] for number in found]
    except KeyError as error:
        raise ForeignDataError(f"There is no task {error} in the table of tasks.") from error
    text = texts[int(np.argmax(counts))]
    if len(texts) == 1:
        return Instructions(text, {}, {}, {})
    kept = {PER_STEP: np.asarray(places, np.float32).reshape(-1)}
    why = {"changes of the task": f"training uses the longest one; {PER_STEP} keeps all"}
    return Instructions(text, kept, {INSTRUCTIONS: texts}, why)


def _task_table(root: Path) -> dict[int, str]:
    lines = root / "meta" / "tasks.jsonl"
    try:
        if lines.is_file():
            text = read_inside(root, lines, MOST_LINES_BYTES)
            entries = [json.loads(line) for line in text.splitlines() if line.strip()]
            return {int(entry[TASK_INDEX]): str(entry["task"]) for entry in entries}
        path = inside(root, root / "meta" / "tasks.parquet")
        # pandas writes the tasks as an index, which may have no name.
        column = next(name for name in parquet.columns(path) if name != TASK_INDEX)
        plain = parquet.table(path, [TASK_INDEX, column]).to_pydict()
        return dict(zip(plain[TASK_INDEX], map(str, plain[column]), strict=True))
    except ForeignDataError:
        raise
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise ForeignDataError(
            f"The table of tasks in {root / 'meta'} is damaged: {in_brief(error)}."
        ) from error


def split_of(info: Mapping[str, Any], number: int) -> dict[str, str]:
    """Returns the attribute `extra` that says whether an episode is for training or validation."""
    splits = info.get("splits")
    for name, interval in splits.items() if isinstance(splits, Mapping) else ():
        start, _, stop = str(interval).partition(":")
        if start.isdecimal() and stop.isdecimal() and int(start) <= number < int(stop):
            return {SPLIT: TRAINING if name == "train" else VALIDATION}
    return {}
