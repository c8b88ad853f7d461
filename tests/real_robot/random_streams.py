"""Random streams of targets and chunks, valid and invalid, for tests of the safety filter."""

from typing import Protocol

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk

Vector = NDArray[np.float64]

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
KINDS = ("targets", "bang", "shapes", "chunks", "odd chunks", "old session", "nothing", "restart")
# Kind, seed of its random numbers, number of cycles, and a value that may be invalid.
SEGMENT = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.integers(1, 40), ANY_FLOAT
)
STREAMS = st.lists(SEGMENT, min_size=1, max_size=10)
Segment = tuple[str, int, int, float]


def odd_chunk(random: np.random.Generator, value: float, now: float) -> tuple[Vector, Vector]:
    """Draws invalid times (T,) and actions (T, A)."""
    count = int(random.integers(1, 60))
    due = now + 0.02 * np.arange(count, dtype=np.float64)
    action = random.uniform(-4, 4, (count, 14))
    match int(random.integers(0, 10)):
        case 0:
            action[random.integers(count), random.integers(14)] = value
        case 1:
            action *= 1e30
        case 2:
            due[random.integers(count)] = value
        case 3:
            due = random.permutation(due)
        case 4:
            due = due - random.uniform(0.0, 5.0)
        case 5:
            due = due + random.uniform(0.0, 5.0)
        case 6:
            due = now + 1e-6 * np.arange(count, dtype=np.float64)
        case 7:
            action = action[:, : random.integers(0, 14)]
        case 8:
            action = np.where(np.arange(count)[:, None] % 2, ALOHA.lower, ALOHA.upper)
        case _:
            action = np.full((count, 14), value)
    return due, action


class Sink(Protocol):
    """Receives chunks and runs cycles."""

    @property
    def now(self) -> float:
        """Seconds."""
        ...

    def send(self, chunk: ActionChunk, *, old: bool) -> None:
        """Sends a chunk, of this episode or of one before."""
        ...

    def cycle(self, target: Vector | None) -> None:
        """Runs a period, with a target or, if it is None, with that of the chunks."""
        ...

    def restart(self) -> None:
        """Begins a new episode."""
        ...


def play(stream: list[Segment], sink: Sink, *, chunks_only: bool = False) -> None:
    """Sends a stream to a sink."""
    for kind, number, cycles, value in stream:
        random = np.random.default_rng(number)
        if kind == "restart":
            sink.restart()
        if kind in ("chunks", "odd chunks", "old session") or chunks_only:
            due, action = odd_chunk(random, value, sink.now)
            if kind == "chunks":
                due, action = (
                    sink.now + 0.02 * np.arange(50.0),
                    random.uniform(ALOHA.lower, ALOHA.upper, (50, 14)),
                )
            with np.errstate(over="ignore"):
                sink.send(ActionChunk(due, action.astype(np.float32)), old=kind == "old session")
        for cycle in range(cycles):
            target: Vector | None = None
            if kind == "targets":
                target = random.uniform(-4, 4, 14) if cycle % 2 else np.full(14, value)
            elif kind == "bang":
                target = ALOHA.upper if (cycle // (1 + number % 9)) % 2 else ALOHA.lower
            elif kind == "shapes":
                target = np.full([(), (13,), (14, 1), (0,), (15,)][int(random.integers(5))], value)
            sink.cycle(target)
