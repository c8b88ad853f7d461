"""Which answers a controller has taken, by its own word: each of its messages names the last one that reached it.

An arm whose controller has no answer stands where it is. So commands do not go on along the path
that was meant for the time in between: they begin anew, at rest, at the last one that was taken.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.drivers.fri.monitoring import Monitoring

Vector = NDArray[np.float64]

_KEPT = 64
_ROUND = 1 << 32


class _Answer(NamedTuple):
    number: int
    asked: int
    position: Vector


class Answers:
    """Answers of one motion, and which of them arrived. Positions are (7,) rad."""

    def __init__(self) -> None:
        self._sent: deque[_Answer] = deque(maxlen=_KEPT)
        self._taken = _Answer(-1, 0, np.zeros(0))
        self._answered = 0
        self._usual = math.inf

    def begin(self, sequence: int, position: Vector) -> None:
        """Forgets what was sent before.

        Args:
            sequence: Number of the message with which a motion begins.
            position: Where the controller holds its arm.
        """
        self._sent.clear()
        self._taken = _Answer(-1, sequence, position)
        self._answered = sequence

    def note(self, number: int, sequence: int, position: Vector) -> None:
        """Takes down an answer.

        Args:
            number: Its own.
            sequence: Number of the message that it answers.
            position: What it commands.
        """
        self._sent.append(_Answer(number, sequence, position))
        self._answered = sequence

    def missed(self, message: Monitoring) -> Vector | None:
        """Returns where the arm was last commanded to be if the controller lacks an answer, None if it does not.

        Some controller may name an answer one message later than another, always; what is usual is
        no sign of a loss.
        """
        places = [
            place for place, answer in enumerate(self._sent) if answer.number == message.reflected
        ]
        if places:
            for _ in range(places[0] + 1):
                self._taken = self._sent.popleft()
        behind = (self._answered - self._taken.asked) % _ROUND
        if places:
            self._usual = min(self._usual, behind)
        unanswered = (message.sequence - self._answered) % _ROUND > message.receive_multiplier
        if not unanswered and behind <= self._usual:
            return None
        return self._sent[-1].position if self._sent and self._usual else self._taken.position
