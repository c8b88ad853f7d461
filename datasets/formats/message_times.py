"""Times of messages: the steps of an episode, and the message that a step shows, in ns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.files.limits import MOST_STEPS
from stringline.datasets.formats.checks import SAME_TIME_S
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.recording import Message

Times = NDArray[np.int64]
_CLOCKS_APART_NS = 10**9
_BY_LOG = "set format.clock=log for the times of recording."


@dataclass(frozen=True)
class Track:
    """The times of messages of one topic, or of one publisher of it.

    Attributes:
        name: Name in messages.
        times: Times (N,) that count; they do not decrease.
        logged: Times (N,) of recording.
        held: Whether a message stays valid without limit, and the last one does not end the
            episode.
    """

    name: str
    times: Times
    logged: Times
    held: bool = False


@dataclass(frozen=True)
class Resampling:
    """How topics become steps.

    Attributes:
        control_hz: Steps per second.
        stamped: Whether the times in the messages count, not those of recording.
        largest_gap_ns: Largest age of a message at a step.
        held: Topics without limit of age, which do not end the episode.
    """

    control_hz: float
    stamped: bool
    largest_gap_ns: int
    held: Sequence[str] = ()

    def track(self, topic: str, messages: Sequence[Message], name: str | None = None) -> Track:
        """Returns the times of messages, whose `name` in errors is by default the topic.

        Messages without a field for the time count from when they were recorded.

        Raises:
            ForeignDataError: There are none, or their times are not set or go back.
        """
        name = name or topic
        if not messages:
            raise ForeignDataError(f"{name} has no messages.")
        found = [message.stamp_ns if self.stamped else None for message in messages]
        if 0 in found:
            raise ForeignDataError(
                f"{name} at message {found.index(0)} has no time stamp; {_BY_LOG}"
            )
        logged = np.array([message.logged_ns for message in messages], np.int64)
        pairs = zip(messages, found, strict=True)
        times = np.array([m.logged_ns if stamp is None else stamp for m, stamp in pairs], np.int64)
        back = np.flatnonzero(np.diff(times) < 0)
        if len(back):
            place = int(back[0]) + 1
            advice = f"; {_BY_LOG}" if self.stamped else "."
            raise ForeignDataError(
                f"The clock of {name} goes back by {(times[place - 1] - times[place]) / 1e9:.6g} s "
                f"at message {place}{advice}"
            )
        return Track(name, times, logged, topic in self.held)

    def steps(self, shown: Sequence[Track], others: Sequence[Track] = ()) -> Times:
        """Returns the times (T,) from the latest start to the earliest end of the `shown` tracks.

        Raises:
            ForeignDataError: They have different clocks, also those of `others`, do not overlap, or
                have too many steps.
        """
        _check_clocks([*shown, *others])
        ending = [track for track in shown if not track.held] or list(shown)
        begins = max(shown, key=lambda track: int(track.times[0]))
        ends = min(ending, key=lambda track: int(track.times[-1]))
        start = int(begins.times[0])
        end = int(ends.times[-1])
        if end < start:
            raise ForeignDataError(
                f"{ends.name} ends {(start - end) / 1e9:.6g} s before {begins.name} starts; all "
                "topics must overlap."
            )
        count = int((end - start) * self.control_hz / 1e9) + 1
        if count > MOST_STEPS:
            raise ForeignDataError(
                f"{begins.name} and {ends.name} have {count} steps in common; allowed: "
                f"{MOST_STEPS}."
            )
        steps: Times = np.rint(np.arange(count) * (1e9 / self.control_hz)).astype(np.int64)
        return start + steps

    def shown(self, track: Track, steps: Times) -> NDArray[np.intp]:
        """Returns the message that each step (T,) shows, see `latest`."""
        gap = None if track.held else self.largest_gap_ns
        return latest(track.name, track.times, steps, gap)


def _check_clocks(tracks: Sequence[Track]) -> None:
    """Checks that the time stamps of all tracks come from one clock."""
    offsets = {track.name: int(np.median(track.logged - track.times)) for track in tracks}
    first = min(offsets, key=offsets.__getitem__)
    last = max(offsets, key=offsets.__getitem__)
    apart = offsets[last] - offsets[first]
    if apart > _CLOCKS_APART_NS:
        raise ForeignDataError(
            f"The clocks of {first} and {last} differ by {apart / 1e9:.6g} s; {_BY_LOG}"
        )


def latest(topic: str, times: Times, steps: Times, largest_gap_ns: int | None) -> NDArray[np.intp]:
    """Returns for each step (T,) the index of the last message that is not later.

    Less than `SAME_TIME_S` is not later: stamps and steps are rounded to nanoseconds, stamps often
    to microseconds. A robot has no later images when it acts, so it is not the nearest one.
    Messages older than `largest_gap_ns`, and steps before the first one, are errors.
    """
    found = np.searchsorted(times, steps + round(SAME_TIME_S * 1e9), side="right") - 1
    age = steps - times[np.maximum(found, 0)]
    wrong = found < 0
    if largest_gap_ns is not None:
        wrong |= age > largest_gap_ns
    if wrong.any():
        step = int(np.argmax(wrong))
        at = (steps[step] - steps[0]) / 1e9
        if found[step] < 0:
            raise ForeignDataError(f"{topic} has no message before {at:.6g} s.")
        raise ForeignDataError(
            f"{topic} has a gap: its last message at {at:.6g} s is {age[step] / 1e9:.6g} s old; "
            f"allowed: format.largest_gap_s={(largest_gap_ns or 0) / 1e9:g}, or any for topics in "
            "format.held."
        )
    return found


def nearest(times: Times, wanted: Times) -> NDArray[np.intp]:
    """Returns for each wanted time (K,) the index of the nearest message."""
    after = np.clip(np.searchsorted(times, wanted), 1, max(len(times) - 1, 1))
    earlier = wanted - times[after - 1] <= times[np.minimum(after, len(times) - 1)] - wanted
    return np.where(earlier, after - 1, np.minimum(after, len(times) - 1))
