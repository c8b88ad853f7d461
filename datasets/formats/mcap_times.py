"""Resampling of topics to the steps of an episode, by time stamps in ns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.files.limits import MOST_STEPS
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.mcap_recording import Message

Times = NDArray[np.int64]
_CLOCKS_APART_NS = 10**9


def topic_times(topic: str, messages: Sequence[Message], *, stamped: bool) -> Times:
    """Returns the times (N,) of the messages of a topic, which must not decrease.

    `stamped` takes the time in a message; messages without a field for it, and others, count from
    when they were recorded.
    """
    if not messages:
        raise ForeignDataError(f"{topic} has no messages.")
    found = [message.stamp_ns if stamped else None for message in messages]
    if 0 in found:
        raise ForeignDataError(
            f"{topic} at message {found.index(0)} has no time stamp; set format.clock=log for the "
            "times of recording."
        )
    times = np.array(
        [
            message.logged_ns if stamp is None else stamp
            for message, stamp in zip(messages, found, strict=True)
        ],
        np.int64,
    )
    back = np.flatnonzero(np.diff(times) < 0)
    if len(back):
        place = int(back[0]) + 1
        raise ForeignDataError(
            f"The clock of {topic} goes back by {(times[place - 1] - times[place]) / 1e9:.6g} s "
            f"at message {place}."
        )
    return times


def check_clocks(times: Mapping[str, Times], logged: Mapping[str, Times]) -> None:
    """Checks that the time stamps of all topics come from one clock."""
    offsets = {topic: int(np.median(logged[topic] - times[topic])) for topic in times}
    first = min(offsets, key=offsets.__getitem__)
    last = max(offsets, key=offsets.__getitem__)
    apart = offsets[last] - offsets[first]
    if apart > _CLOCKS_APART_NS:
        raise ForeignDataError(
            f"The clocks of {first} and {last} differ by {apart / 1e9:.6g} s; set format.clock=log "
            "for the times of recording."
        )


@dataclass(frozen=True)
class Timeline:
    """The steps of an episode, and the times of the topics.

    Attributes:
        steps: Times (T,) of the steps.
        times: Times (N,) of the messages by topic.
        latest: For each topic that steps show, the number of the last message (T,).
    """

    steps: Times
    times: Mapping[str, Times]
    latest: Mapping[str, NDArray[np.intp]]


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

    def timeline(self, messages: Mapping[str, Sequence[Message]], shown: Sequence[str]) -> Timeline:
        """Returns the steps at which all `shown` topics have a message."""
        times = {
            topic: topic_times(topic, found, stamped=self.stamped)
            for topic, found in messages.items()
        }
        logged = {
            topic: np.array([message.logged_ns for message in found], np.int64)
            for topic, found in messages.items()
        }
        check_clocks(times, logged)
        steps = self._steps({topic: times[topic] for topic in shown})
        gaps = {topic: None if topic in self.held else self.largest_gap_ns for topic in shown}
        found = {topic: latest(topic, times[topic], steps, gaps[topic]) for topic in shown}
        return Timeline(steps, times, found)

    def _steps(self, times: Mapping[str, Times]) -> Times:
        """Returns the times (T,) from the latest start to the earliest end of the topics."""
        ending = [topic for topic in times if topic not in self.held] or list(times)
        begins = max(times, key=lambda topic: int(times[topic][0]))
        ends = min(ending, key=lambda topic: int(times[topic][-1]))
        start = int(times[begins][0])
        end = int(times[ends][-1])
        if end < start:
            raise ForeignDataError(
                f"{ends} ends {(start - end) / 1e9:.6g} s before {begins} starts; all topics must "
                "overlap."
            )
        count = int((end - start) * self.control_hz / 1e9) + 1
        if count > MOST_STEPS:
            raise ForeignDataError(
                f"{begins} and {ends} have {count} steps in common; allowed: {MOST_STEPS}."
            )
        steps: Times = np.rint(np.arange(count) * (1e9 / self.control_hz)).astype(np.int64)
        return start + steps


def latest(topic: str, times: Times, steps: Times, largest_gap_ns: int | None) -> NDArray[np.intp]:
    """Returns for each step (T,) the index of the last message that is not later.

    Messages older than `largest_gap_ns`, and steps before the first one, are errors.
    """
    found = np.searchsorted(times, steps, side="right") - 1
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
