"""Traces of recorded episodes for reports: stages, commands, first observation and motion."""

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
_MOTION_TIME = "motion/time"
_MOTION_POSITIONS = "motion/positions"


@dataclass(frozen=True)
class Trace:
    """Courses of an episode, with at most 200 samples each.

    Attributes:
        names: All stages of the task, in order.
        stages: Times of the first arrival at each stage but the first, seconds, in order of time.
        time: (S,) start of each sample, seconds.
        openings: (S,) commanded openings by arm, 0 closed to 1 open.
        speed: (S,) largest speed of any commanded joint during a sample, rad/s.
    """

    names: tuple[str, ...]
    stages: Mapping[str, float]
    time: NDArray[np.float32]
    openings: Mapping[str, NDArray[np.float32]]
    speed: NDArray[np.float32]

    @classmethod
    def of(cls, rollout: Rollout, stages: Sequence[str], contract: Contract) -> Self:
        """Returns the trace of an episode of at least one action; `stages` are all names."""
        actions = np.stack(rollout.actions).astype(np.float32)
        kinds = [(dimension.kind, dimension.mode) for dimension in contract.action]
        joints = [column for column, kind in enumerate(kinds) if kind == ("joint", "absolute")]
        speeds = (
            np.abs(np.diff(actions[:, joints], axis=0, prepend=actions[:1, joints]))
            * contract.control_hz
        )
        groups = np.array_split(np.arange(len(actions)), min(len(actions), _MOST_SAMPLES))
        starts = np.array([group[0] for group in groups])
        return cls(
            tuple(stages),
            {stages[stage]: time for stage, time in rollout.stage_times.items() if stage},
            (starts / contract.control_hz).astype(np.float32),
            {
                dimension.arm: actions[starts, column]
                for column, dimension in enumerate(contract.action)
                if kinds[column] == ("gripper", "absolute")
            },
            np.array([speeds[group].max(initial=0.0) for group in groups], np.float32),
        )


@dataclass(frozen=True)
class Motion:
    """The motion of all bodies in an episode.

    Attributes:
        time: (F,) time of each frame, seconds.
        positions: (F, nq) positions of all joints of the world, in MuJoCo's order.
    """

    time: NDArray[np.float64]
    positions: NDArray[np.float64]

    @classmethod
    def of(cls, rollout: Rollout) -> Self | None:
        """Returns the motion of an episode; None if it was not recorded."""
        if not rollout.motion:
            return None
        return cls(np.array(list(rollout.motion)), np.stack(list(rollout.motion.values())))


def trace_of_video(video: Path) -> Path:
    """Returns the file of the trace of a video."""
    return video.with_suffix(".npz")


def write_trace(
    path: Path, trace: Trace, observation: Mapping[str, Array], motion: Motion | None = None
) -> None:
    """Writes a trace with the first observation and the motion, if known, compressed."""
    arrays: dict[str, Any] = {
        "names": np.array(trace.names, np.str_),
        "stages": np.array(list(trace.stages), np.str_),
        "reached": np.array(list(trace.stages.values()), np.float64),
        "time": trace.time,
        "speed": trace.speed,
        **{f"opening/{arm}": course for arm, course in trace.openings.items()},
        **{_SEEN + key: value for key, value in observation.items()},
    }
    if motion is not None:
        arrays[_MOTION_TIME] = motion.time
        arrays[_MOTION_POSITIONS] = motion.positions.astype(np.float32)
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    write_file(path, data.getvalue())


def read_trace(path: Path) -> Trace | None:
    """Reads a trace without its observation; None if the file does not exist."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        stages = dict(zip(file["stages"].tolist(), file["reached"].tolist(), strict=True))
        openings = {
            key.partition("/")[2]: file[key] for key in file.files if key.startswith("opening/")
        }
        return Trace(tuple(file["names"].tolist()), stages, file["time"], openings, file["speed"])


def read_motion(path: Path) -> Motion | None:
    """Reads the motion of an episode; None if the file does not exist or has no motion."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        if _MOTION_TIME not in file.files:
            return None
        return Motion(file[_MOTION_TIME], file[_MOTION_POSITIONS].astype(np.float64))


def read_first_observation(path: Path) -> dict[str, Array] | None:
    """Reads the first observation of the policy; None if the file does not exist."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {key.removeprefix(_SEEN): file[key] for key in file.files if key.startswith(_SEEN)}
