"""Messages out of their pieces, in bounded memory: pieces may come doubled, in any order, or never."""

from collections import OrderedDict
from dataclasses import dataclass, field

from stringline.real_robot.drivers.lcm.datagram import Fragment

Source = tuple[str, int]


@dataclass
class _Partial:
    """A message of which pieces are missing."""

    size: int
    count: int
    pieces: dict[int, Fragment] = field(default_factory=dict)
    taken: int = 0

    def joined(self) -> tuple[str, bytes] | None:
        """Returns channel and message, None if the pieces leave gaps or lie over each other."""
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
    """Puts pieces together, for several publishers at a time.

    Args:
        longest: Message that is put together, bytes; longer ones are left out.
        most: Messages that may be incomplete at a time; for one more the oldest is given up.

    Attributes:
        refused: Pieces that were left out.
        given_up: Messages that never became whole.
    """

    def __init__(self, longest: int = 1 << 20, most: int = 8) -> None:
        self._longest = longest
        self._most = most
        self._partial: OrderedDict[tuple[Source, int], _Partial] = OrderedDict()
        self.refused = self.given_up = 0

    def take(self, source: Source, fragment: Fragment) -> tuple[str, bytes] | None:
        """Takes a piece; returns channel and message if it was the last that was missing.

        Args:
            source: Of the publisher, whose counter the sequence is.
            fragment: As it came in.
        """
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
        if partial.taken > partial.size:  # Pieces that lie over each other.
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
