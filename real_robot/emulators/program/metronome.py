"""The periods of emulated controllers by the host's clock."""

import math
from collections.abc import Sequence

# A late emulator makes up for that much and skips the rest, as a real world would have gone on.
MOST_LAG_S = 0.25


class Metronome:
    """Periods of several controllers, each with its own phase.

    After a late period the next ones follow at twice the rate until the time is made up for. They
    never follow at once, since clients need time to answer, as a real controller allows.

    Args:
        period_s: Seconds between two periods of an arm.
        phase: Share of a period by which each arm is behind the one before it.
        now: Time of the first period, seconds of the clock of `take`.
        most_lag_s: Longest time that is made up for.

    Attributes:
        skipped: Number of periods of each arm that the last call of `take` skipped.
    """

    def __init__(
        self,
        arms: Sequence[str],
        period_s: float,
        phase: float,
        now: float,
        most_lag_s: float = MOST_LAG_S,
    ) -> None:
        self._period_s = period_s
        self._most_lag_s = most_lag_s
        self._due = {arm: now + index * phase * period_s for index, arm in enumerate(arms)}
        self._not_before = dict(self._due)
        self.skipped = dict.fromkeys(arms, 0)

    def take(self, now: float) -> list[str]:
        """Returns the arms whose period is due, and counts it as done."""
        found = [arm for arm, due in self._not_before.items() if now >= due]
        for arm in found:
            due = self._due[arm] + self._period_s
            self.skipped[arm] = max(0, math.ceil((now - self._most_lag_s - due) / self._period_s))
            self._due[arm] = max(due, now - self._most_lag_s)
            self._not_before[arm] = max(self._due[arm], now + self._period_s / 2)
        return found

    @property
    def next(self) -> float:
        """Time of the next period."""
        return min(self._not_before.values())
