"""The rule by which an emulated controller rates its connection.

KUKA's own rule is not public; this one is an assumption.
"""

from collections import deque
from dataclasses import dataclass

from stringline.real_robot.drivers.fri.enums import Quality


@dataclass(frozen=True)
class QualityRule:
    """Thresholds on the share of answers in time.

    Attributes:
        window: Number of answers that count.
        fair: Smallest share for FAIR.
        good: Smallest share for GOOD.
        excellent: Smallest share for EXCELLENT.
        most_missed: Consecutive answers that may be missing; with one more the connection is POOR.
    """

    window: int = 20
    fair: float = 0.5
    good: float = 0.8
    excellent: float = 0.95
    most_missed: int = 4

    def __post_init__(self) -> None:
        """Checks the order of the thresholds."""
        if (
            self.window < 1
            or self.most_missed < 0
            or not 0 <= self.fair <= self.good <= self.excellent <= 1
        ):
            raise ValueError(
                f"A rule of quality needs window >= 1, most_missed >= 0 and 0 <= fair <= good <= "
                f"excellent <= 1; got {self}."
            )


class QualityMeter:
    """Rates a connection by a rule; a new one has had no answers."""

    def __init__(self, rule: QualityRule) -> None:
        self._rule = rule
        self.reset()

    def reset(self) -> None:
        """Begins again."""
        self._seen: deque[bool] = deque([False] * self._rule.window, self._rule.window)
        self._missed = self._rule.most_missed + 1

    def note(self, answered: bool) -> None:
        """Notes whether an answer arrived in time."""
        self._seen.append(answered)
        self._missed = 0 if answered else self._missed + 1

    @property
    def quality(self) -> Quality:
        """Quality of the connection."""
        rule = self._rule
        share = sum(self._seen) / self._rule.window
        if self._missed > rule.most_missed or share < rule.fair:
            return Quality.POOR
        if share < rule.good:
            return Quality.FAIR
        return Quality.GOOD if share < rule.excellent else Quality.EXCELLENT
