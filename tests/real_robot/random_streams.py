"""Random streams of targets and chunks, valid and invalid, for tests of the safety filter."""

from typing import Protocol

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from stringline import ALOHA, ActionChunk, Embodiment

Vector = NDArray[np.float64]

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
KINDS = ("targets", "bang", "shapes", "chunks", "odd chunks", "old session", "nothing", "restart")
# Kind, seed of its random numbers, number of cycles, and a value that may be invalid.
SEGMENT = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.integers(1, 40), ANY_FLOAT
)
STREAMS = st.lists(SEGMENT, min_size=1, max_size=10)
PRESS = "press"
PRESSING_KINDS = (*KINDS, *(PRESS,) * len(KINDS))
PRESSES_CYCLES = 8  # Periods for which a target is held, for each cycle of a segment.
# Half of the segments hold a target that is too near to something.
PRESSING_STREAMS = st.lists(
    st.tuples(
        st.sampled_from(PRESSING_KINDS), st.integers(0, 2**32 - 1), st.integers(1, 40), ANY_FLOAT
    ),
    min_size=1,
    max_size=10,
)
Segment = tuple[str, int, int, float]


def odd_chunk(
    random: np.random.Generator, value: float, now: float, body: Embodiment = ALOHA
) -> tuple[Vector, Vector]:
    """Draws invalid times (T,) and actions (T, A)."""
    count, joints = int(random.integers(1, 60)), len(body.joints)
    due = now + 0.02 * np.arange(count, dtype=np.float64)
    action = random.uniform(-4, 4, (count, joints))
    match int(random.integers(0, 10)):
        case 0:
            action[random.integers(count), random.integers(joints)] = value
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
            action = action[:, : random.integers(0, joints)]
        case 8:
            action = np.where(np.arange(count)[:, None] % 2, body.lower, body.upper)
        case _:
            action = np.full((count, joints), value)
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


def play(
    stream: list[Segment],
    sink: Sink,
    body: Embodiment = ALOHA,
    *,
    chunks_only: bool = False,
    too_near: Vector | None = None,
) -> None:
    """Sends a stream to a sink; `too_near` (N, J) are targets that arms must not reach."""
    joints = len(body.joints)
    for kind, number, cycles, value in stream:
        random = np.random.default_rng(number)
        if kind == "restart":
            sink.restart()
        if kind in ("chunks", "odd chunks", "old session") or chunks_only:
            due, action = odd_chunk(random, value, sink.now, body)
            if kind == "chunks":
                due, action = (
                    sink.now + 0.02 * np.arange(50.0),
                    random.uniform(body.lower, body.upper, (50, joints)),
                )
            with np.errstate(over="ignore"):
                sink.send(ActionChunk(due, action.astype(np.float32)), old=kind == "old session")
        if kind == PRESS and too_near is not None:
            for _ in range(PRESSES_CYCLES * cycles):
                sink.cycle(too_near[number % len(too_near)])
            continue
        shapes = [(), (joints - 1,), (joints, 1), (0,), (joints + 1,)]
        for cycle in range(cycles):
            target: Vector | None = None
            if kind == "targets":
                target = random.uniform(-4, 4, joints) if cycle % 2 else np.full(joints, value)
            elif kind == "bang":
                target = body.upper if (cycle // (1 + number % 9)) % 2 else body.lower
            elif kind == "shapes":
                target = np.full(shapes[int(random.integers(5))], value)
            sink.cycle(target)
