"""What is kept of a videoed episode for its report: when stages were reached, what was commanded, and what was seen first."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.files.atomic import write_file
from stringline.sim.rollout.rollout import Rollout

_MOST_SAMPLES = 200
_SEEN = "observation/"


@dataclass(frozen=True)
class Trace:
    """An episode in a few numbers; at most 200 samples of each course.

    Attributes:
        names: All stages of the task, in order.
        stages: When each stage was first reached, seconds, by its name, in the order in which they
            were; not the first of all.
        time: (S,) seconds, when each sample begins.
        openings: (S,) commanded opening of each gripper, 0 closed to 1 open, by the name of its
            arm.
        speed: (S,) the largest speed of any commanded joint, rad/s, and the largest of what a
            sample stands for.
    """

    names: tuple[str, ...]
    stages: Mapping[str, float]
    time: NDArray[np.float32]
    openings: Mapping[str, NDArray[np.float32]]
    speed: NDArray[np.float32]

    @classmethod
    def of(cls, rollout: Rollout, stages: Sequence[str], contract: Contract) -> Self:
        """Makes the trace of an episode of at least one action.

        Args:
            rollout: How it went.
            stages: Names of all stages.
            contract: Of its actions.
        """
        actions = np.stack(rollout.actions).astype(np.float32)
        kinds = [(dimension.kind, dimension.mode) for dimension in contract.action]
        joints = [column for column, kind in enumerate(kinds) if kind == ("joint", "absolute")]
        speeds = (
            np.abs(np.diff(actions[:, joints], axis=0, prepend=actions[:1, joints]))
            * contract.control_hz
        )
        groups = np.array_split(np.arange(len(actions)), min(len(actions), _MOST_SAMPLES))
        begins = np.array([group[0] for group in groups])
        return cls(
            tuple(stages),
            {stages[stage]: time for stage, time in rollout.stage_times.items() if stage},
            (begins / contract.control_hz).astype(np.float32),
            {
                dimension.arm: actions[begins, column]
                for column, dimension in enumerate(contract.action)
                if kinds[column] == ("gripper", "absolute")
            },
            np.array([speeds[group].max(initial=0.0) for group in groups], np.float32),
        )


def trace_of_video(video: Path) -> Path:
    """Returns where the trace of a video is kept."""
    return video.with_suffix(".npz")


def write_trace(path: Path, trace: Trace, observation: Mapping[str, Array]) -> None:
    """Writes a trace, compressed, with what was seen first.

    Raises:
        NoSpaceError: The disk is full.
    """
    arrays: dict[str, Any] = {
        "names": np.array(trace.names, np.str_),
        "stages": np.array(list(trace.stages), np.str_),
        "reached": np.array(list(trace.stages.values()), np.float64),
        "time": trace.time,
        "speed": trace.speed,
        **{f"opening/{arm}": course for arm, course in trace.openings.items()},
        **{_SEEN + key: value for key, value in observation.items()},
    }
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    write_file(path, data.getvalue())


def read_trace(path: Path) -> Trace | None:
    """Reads a trace, and not what was seen; None where an older version kept none."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        stages = dict(zip(file["stages"].tolist(), file["reached"].tolist(), strict=True))
        openings = {
            key.partition("/")[2]: file[key] for key in file.files if key.startswith("opening/")
        }
        return Trace(tuple(file["names"].tolist()), stages, file["time"], openings, file["speed"])


def read_first_observation(path: Path) -> dict[str, Array] | None:
    """Reads what the policy saw first; None where an older version kept nothing."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {key.removeprefix(_SEEN): file[key] for key in file.files if key.startswith(_SEEN)}
