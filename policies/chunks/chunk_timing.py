"""The timing of chunks: coverage, interpolation, truncation and delay."""

import numpy as np
from numpy.typing import NDArray

from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.chunks.prefix import SAME_TIME_S


def periods_covered(chunk: ActionChunk, now: float, control_hz: float) -> int:
    """Returns the number of control periods from `now` that a chunk covers.

    Its last action covers one period.
    """
    return max(int(np.floor((chunk.time[-1] - now + SAME_TIME_S) * control_hz)) + 1, 0)


def actions_at(chunk: ActionChunk, time: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns the actions (K, A) of a chunk at times (K,) that it covers.

    Its own actions are returned to the bit; between two of them they are interpolated linearly.
    """
    after = np.clip(np.searchsorted(chunk.time, time - SAME_TIME_S), 0, len(chunk.time) - 1)
    before = np.maximum(after - 1, 0)
    span = chunk.time[after] - chunk.time[before]
    share = np.clip((time - chunk.time[before]) / np.where(span > 0, span, 1.0), 0.0, 1.0)[:, None]
    early = chunk.action[before].astype(np.float64)
    late = chunk.action[after].astype(np.float64)
    own = np.abs(chunk.time[after] - time) <= SAME_TIME_S
    between: NDArray[np.float32] = (early + share * (late - early)).astype(np.float32)
    return np.where(own[:, None], chunk.action[after], between)


def beginning(chunk: ActionChunk, seconds: float) -> ActionChunk:
    """Returns the actions of the first seconds of a chunk."""
    count = int(np.searchsorted(chunk.time, chunk.time[0] + seconds - SAME_TIME_S))
    return ActionChunk(chunk.time[:count], chunk.action[:count])


def postponed(chunk: ActionChunk, seconds: float) -> ActionChunk:
    """Returns a chunk with all its actions delayed by some seconds."""
    return ActionChunk(chunk.time + seconds, chunk.action)
