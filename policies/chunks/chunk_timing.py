"""Chunks by the times at which their actions are due."""

import numpy as np
from numpy.typing import NDArray

from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.chunks.prefix import SAME_TIME_S


def periods_covered(chunk: ActionChunk, now: float, control_hz: float) -> int:
    """Returns for how many control periods from `now` on a chunk says what to do; its last action counts for one period."""
    return max(int(np.floor((chunk.time[-1] - now + SAME_TIME_S) * control_hz)) + 1, 0)


def actions_at(chunk: ActionChunk, time: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns the actions (K, A) of a chunk at times (K,) that it covers: its own to the bit, linear between two of them."""
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
    """Returns what of a chunk is due within its first seconds."""
    count = int(np.searchsorted(chunk.time, chunk.time[0] + seconds - SAME_TIME_S))
    return ActionChunk(chunk.time[:count], chunk.action[:count])


def postponed(chunk: ActionChunk, seconds: float) -> ActionChunk:
    """Returns a chunk with all its actions due that much later."""
    return ActionChunk(chunk.time + seconds, chunk.action)
