"""The instruction of a LeRobot episode, by the `task_index` of its frames, and its split."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.contract.instructions import INSTRUCTIONS, PER_STEP
from stringline.datasets.files.limits import MOST_LINES_BYTES
from stringline.datasets.formats import parquet
from stringline.datasets.formats.checks import in_brief, inside, read_inside
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.loading.sampler import SPLIT, TRAINING, VALIDATION

TASK_INDEX = "task_index"
# pandas writes the tasks as an index, which may have no name.
_TASK_COLUMNS = ("task", "__index_level_0__")


class Instructions(NamedTuple):
    """The instruction of an episode, and what keeps further ones.

    Attributes:
        text: The instruction of most steps.
        arrays: `PER_STEP` if the instruction changes.
        extra: The instructions by their place, if they change.
        skipped_fields: What the episode does not keep, or lacks.
    """

    text: str
    arrays: Mapping[str, Array]
    extra: Mapping[str, Any]
    skipped_fields: Mapping[str, str]


def instructions_of(
    known: Mapping[int, str] | None, listed: Sequence[str], numbers: Array | None
) -> Instructions:
    """Returns the instructions of an episode: those of its frames, as lerobot reads them.

    Args:
        known: The table of tasks, if there is one.
        listed: The tasks of the episode in the list of episodes, which count only if the frames
            or the table of tasks name none.
        numbers: (T,) places of the tasks of the frames in the table of tasks, if recorded.

    Raises:
        ForeignDataError: The table of tasks lacks a task, or is missing.
    """
    if known is None or numbers is None:
        return _listed(listed, numbers)
    found, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    try:
        texts = [known[int(number)] for number in found]
    except KeyError as error:
        raise ForeignDataError(f"There is no task {error} in the table of tasks.") from error
    text = texts[int(np.argmax(counts))]
    skipped_fields = {} if text else {"instruction": "its task is an empty text"}
    if listed and {*listed} != {*texts}:
        skipped_fields["tasks of the list of episodes"] = (
            f"they contradict {TASK_INDEX}, which counts, as in lerobot"
        )
    if len(texts) == 1:
        return Instructions(text, {}, {}, skipped_fields)
    kept = {PER_STEP: np.asarray(places, np.float32).reshape(-1)}
    why = {"changes of the task": f"training uses the longest one; {PER_STEP} keeps all"}
    return Instructions(text, kept, {INSTRUCTIONS: texts}, {**skipped_fields, **why})


def _listed(listed: Sequence[str], numbers: Array | None) -> Instructions:
    """Returns the instruction of the list of episodes."""
    if numbers is not None and max(len(listed), len(np.unique(numbers))) > 1:
        raise ForeignDataError(
            f"Its frames have a {TASK_INDEX}, and there is no table of tasks, meta/tasks.jsonl or "
            f"meta/tasks.parquet; the list of episodes has: {', '.join(listed) or 'none'}."
        )
    text = listed[0] if listed else ""
    lost = {} if text else {"instruction": "neither its frames nor the list of episodes name it"}
    if len(listed) > 1:
        lost["tasks"] = "tasks after the first one; the frames do not name theirs"
    return Instructions(text, {}, {}, lost)


def task_table(root: Path) -> dict[int, str] | None:
    """Returns the tasks of a data set by their index; None without a table.

    Raises:
        ForeignDataError: The table is damaged.
    """
    lines = root / "meta" / "tasks.jsonl"
    path = root / "meta" / "tasks.parquet"
    try:
        if lines.is_file():
            text = read_inside(root, lines, MOST_LINES_BYTES)
            entries = [json.loads(line) for line in text.splitlines() if line.strip()]
            return {int(entry[TASK_INDEX]): str(entry["task"]) for entry in entries}
        if not inside(root, path).is_file():
            return None
        offered = [name for name in parquet.columns(path) if name != TASK_INDEX]
        column = next((name for name in _TASK_COLUMNS if name in offered), offered[0])
        plain = parquet.table(path, [TASK_INDEX, column]).to_pydict()
        return dict(zip(plain[TASK_INDEX], map(str, plain[column]), strict=True))
    except ForeignDataError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
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
