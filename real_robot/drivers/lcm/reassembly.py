"""Messages from their fragments, in bounded memory; fragments may be late, duplicated or lost."""

from collections import OrderedDict
from dataclasses import dataclass, field

from stringline.real_robot.drivers.lcm.datagram import Fragment

Source = tuple[str, int]


@dataclass
class _Partial:
    """A message with missing fragments."""

    size: int
    count: int
    pieces: dict[int, Fragment] = field(default_factory=dict)
    taken: int = 0

    def joined(self) -> tuple[str, bytes] | None:
        """Returns channel and message, or None if the fragments leave gaps or overlap."""
        at = 0
        ordered = [self.pieces[number] for number in range(self.count)]
        for one in ordered:
            if one.offset != at:
                return None
            at += len(one.piece)
        return (
            (ordered[0].channel, b"".join(one.piece for one in ordered))
            if at == self.size
            else None
        )


class Reassembly:
    """Assembles messages of several publishers.

    Args:
        longest: Bytes of the longest message; longer ones are refused.
        most: Number of incomplete messages; for one more the oldest is given up.

    Attributes:
        refused: Number of refused fragments.
        given_up: Number of messages that remained incomplete.
    """

    def __init__(self, longest: int = 1 << 20, most: int = 8) -> None:
        self._longest = longest
        self._most = most
        self._partial: OrderedDict[tuple[Source, int], _Partial] = OrderedDict()
        self.refused = 0
        self.given_up = 0

    def take(self, source: Source, fragment: Fragment) -> tuple[str, bytes] | None:
        """Takes a publisher's fragment; returns channel and message after the last missing one."""
        if fragment.size > self._longest:
            self.refused += 1
            return None
        key = (source, fragment.sequence)
        partial = self._partial.get(key)
        if partial is not None and (partial.size, partial.count) != (fragment.size, fragment.total):
            self._give_up(key)  # The counter has gone round, or the publisher was started anew.
            partial = None
        if partial is None:
            if len(self._partial) >= self._most:
                self._give_up(next(iter(self._partial)))
            partial = self._partial[key] = _Partial(fragment.size, fragment.total)
        if fragment.number in partial.pieces:
            self.refused += 1
            return None
        partial.taken += len(fragment.piece)
        if partial.taken > partial.size:  # Overlapping fragments.
            self._give_up(key)
            return None
        partial.pieces[fragment.number] = fragment
        if len(partial.pieces) < partial.count:
            return None
        del self._partial[key]
        whole = partial.joined()
        self.given_up += whole is None
        return whole

    def _give_up(self, key: tuple[Source, int]) -> None:
        del self._partial[key]
        self.given_up += 1
