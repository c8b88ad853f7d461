"""The numeric features of an exported LeRobotDataset: their description and their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.contract import SERIES, Array, Contract
from stringline.datasets.contract.instructions import INSTRUCTIONS, PER_STEP
from stringline.datasets.formats import exporting
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.store.episode import StoredEpisode

STATE = "observation.state"
ACTION = "action"
REWARD = "next.reward"
SUCCESS = "next.success"
DONE = "next.done"
INDICES = ("frame_index", "episode_index", "index", "task_index")
RESERVED = (STATE, ACTION, REWARD, SUCCESS, DONE, "timestamp", *INDICES)
SAID = (PER_STEP, f"attribute {INSTRUCTIONS}")
Table = dict[str, Array]


@dataclass(frozen=True)
class NumericFeatures:
    """The numeric features that all episodes of an export have.

    Attributes:
        tasks: All instructions.
        reward: Whether all episodes have rewards.
        success: Whether the success of all episodes is known.
        series: Key and type of the arrays (T,) and (T, D) of further features by their names.
    """

    contract: Contract
    tasks: Sequence[str]
    reward: bool
    success: bool
    series: Mapping[str, str]

    @classmethod
    def of(cls, episodes: Sequence[StoredEpisode]) -> Self:
        """Returns the features of episodes with one contract."""
        named = {key.removeprefix(SERIES).replace("/", "."): key for key in _series(episodes)}
        return cls(
            episodes[0].attributes.contract,
            list(dict.fromkeys(text for each in episodes for text in tasks_of(each))),
            "reward" in exporting.common_keys(episodes),
            all(each.attributes.success is not None for each in episodes),
            {name: key for name, key in named.items() if name not in RESERVED},
        )

    @property
    def held(self) -> set[str]:
        """The keys and attributes of episodes that the features contain."""
        optional = {"reward": self.reward, "success": self.success}
        keys = {"action", "joints/position", "instruction", *SAID, *self.series.values()}
        return keys | {name for name, there in optional.items() if there}

    def described(self, example: StoredEpisode) -> dict[str, Any]:
        """Returns the features of `info.json`."""
        names = {ACTION: [dimension.name for dimension in self.contract.action]}
        if self.contract.joints:
            names[STATE] = list(self.contract.joints)
        return {
            key: {
                "dtype": column.dtype.name,
                "shape": list(column.shape[1:]) or [1],
                "names": names.get(key),
            }
            for key, column in self.values(example, 0, 0).items()
        }

    def values(self, episode: StoredEpisode, number: int, first: int) -> Table:
        """Returns the numbers of an episode by feature, (T, D) or (T,).

        `number` is the place of the episode, and `first` that of its first frame in the data set.
        """
        arrays = episode.arrays
        steps = np.arange(episode.steps)
        found: Table = {ACTION: np.ascontiguousarray(arrays["action"], np.float32)}
        if self.contract.joints:
            found[STATE] = np.ascontiguousarray(arrays["joints/position"], np.float32)
        found["timestamp"] = np.asarray(steps / self.contract.control_hz, np.float32)
        found |= {
            "frame_index": steps,
            "episode_index": 0 * steps + number,
            "index": first + steps,
            "task_index": self._task_numbers(episode),
        }
        if self.reward:
            found[REWARD] = np.asarray(arrays["reward"], np.float32)
        if self.success:
            found[SUCCESS] = (steps == steps[-1]) & bool(episode.attributes.success)
        if self.reward or self.success:
            found[DONE] = steps == steps[-1]
        return found | {name: np.asarray(arrays[key]) for name, key in self.series.items()}

    def _task_numbers(self, episode: StoredEpisode) -> Array:
        numbers = np.array([self.tasks.index(text) for text in tasks_of(episode)], np.int64)
        if len(numbers) == 1:
            return np.full(episode.steps, numbers[0])
        return numbers[np.asarray(episode.arrays[PER_STEP], np.int64)]

    def columns(self, episode: StoredEpisode, number: int, first: int) -> dict[str, Any]:
        """Returns the columns of the parquet file of an episode, see `values`."""
        arrow = optional_library("pyarrow")
        return {
            key: arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])
            if values.ndim == 2 and values.shape[1] > 1
            else arrow.array(values.ravel())
            for key, values in self.values(episode, number, first).items()
        }


def tasks_of(episode: StoredEpisode) -> list[str]:
    """Returns the instructions of an episode: one, or those that `PER_STEP` counts."""
    attributes = episode.attributes
    several = attributes.extra.get(INSTRUCTIONS)
    if several and PER_STEP in episode.entries:
        return [str(text) for text in several]
    return [attributes.instruction or attributes.task]


def _series(episodes: Sequence[StoredEpisode]) -> list[str]:
    entries = episodes[0].entries
    return [
        key
        for key in exporting.common_keys(episodes)
        if key.startswith(SERIES) and key != PER_STEP and len(entries[key].shape) <= 2
    ]
