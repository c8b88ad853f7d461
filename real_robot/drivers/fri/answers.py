"""The answers that a controller has accepted: each of its messages names the last one.

An arm whose controller has no answer stands still. So commands do not continue along the path that
was meant for the time in between: they begin again, at rest, at the last accepted one.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.fri.monitoring import Monitoring

_KEPT = 64
_ROUND = 1 << 32


class _Answer(NamedTuple):
    number: int
    message: int
    position: Vector


class Answers:
    """The answers of one motion. Positions are (7,) rad."""

    def __init__(self) -> None:
        self._sent: deque[_Answer] = deque(maxlen=_KEPT)
        self._taken = _Answer(-1, 0, np.zeros(0))
        self._answered = 0
        self._usual = math.inf

    def begin(self, sequence: int, position: Vector) -> None:
        """Forgets earlier answers: a motion begins with the message `sequence`, at `position`."""
        self._sent.clear()
        self._taken = _Answer(-1, sequence, position)
        self._answered = sequence

    def note(self, number: int, sequence: int, position: Vector) -> None:
        """Notes answer `number` to message `sequence`, and its commanded position."""
        self._sent.append(_Answer(number, sequence, position))
        self._answered = sequence

    def missed(self, message: Monitoring) -> Vector | None:
        """Returns the last accepted position if the controller lacks an answer, or None.

        Some controllers may always name an answer one message later than others: the usual delay
        does not indicate a loss.
        """
        indices = [
            index for index, answer in enumerate(self._sent) if answer.number == message.reflected
        ]
        if indices:
            for _ in range(indices[0] + 1):
                self._taken = self._sent.popleft()
        behind = (self._answered - self._taken.message) % _ROUND
        if indices:
            self._usual = min(self._usual, behind)
        unanswered = (message.sequence - self._answered) % _ROUND > message.receive_multiplier
        if not unanswered and behind <= self._usual:
            return None
        return self._sent[-1].position if self._sent and self._usual else self._taken.position
