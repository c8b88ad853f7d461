"""When the periods of emulated controllers begin, by the host's clock."""

from collections.abc import Sequence

# A late emulator catches up with that much and forgets the rest, as a real world would have gone
# on.
_MAX_LAG_S = 0.25


class Metronome:
    """Beats for several controllers, each at its own phase.

    Where the host was busy and a beat came late, the next ones follow at twice the pace until the
    time is made up for: never at once, since whoever answers must have the time for it, as a real
    controller gives it.

    Args:
        arms: Of the controllers.
        period_s: Between two beats of one.
        phase: By which share of a period each is behind the one before it.
        now: When the first beat is due, seconds of the clock that `take` is told.
    """

    def __init__(self, arms: Sequence[str], period_s: float, phase: float, now: float) -> None:
        self._period_s = period_s
        self._due = {arm: now + place * phase * period_s for place, arm in enumerate(arms)}
        self._not_before = dict(self._due)

    def take(self, now: float) -> list[str]:
        """Returns the arms whose beat it is, and takes it for done."""
        found = [arm for arm, due in self._not_before.items() if now >= due]
        for arm in found:
            self._due[arm] = max(self._due[arm] + self._period_s, now - _MAX_LAG_S)
            self._not_before[arm] = max(self._due[arm], now + self._period_s / 2)
        return found

    @property
    def next(self) -> float:
        """When the next beat is due."""
        return min(self._not_before.values())
