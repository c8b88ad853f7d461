"""What may happen to datagrams on their way, by script: lost, late, twice, in the wrong order, damaged, or cut off for good."""

from collections import Counter, deque

from stringline.datasets.contract.arguments import unknown_name

KINDS = ("drop", "late", "duplicate", "reorder", "corrupt")
_LATE_PERIODS = 3


class Road:
    """One direction of a connection. Faults wait for the next datagrams.

    Attributes:
        cut: Whether nothing gets through.
    """

    def __init__(self) -> None:
        self.cut = False
        self._left: Counter[str] = Counter()
        self._late: deque[tuple[int, bytes]] = deque()
        self._kept: bytes | None = None
        self._period = 0

    def plan(self, kind: str, count: int) -> None:
        """Lets the next `count` datagrams meet with a fault.

        Raises:
            ValueError: There is no such fault.
        """
        if kind not in KINDS:
            raise unknown_name("fault of a connection", kind, KINDS)
        self._left[kind] += max(count, 1)

    def pass_period(self) -> list[bytes]:
        """Goes on by a period and returns what was late and arrives now."""
        self._period += 1
        found = []
        while self._late and self._late[0][0] <= self._period:
            found.append(self._late.popleft()[1])
        return [] if self.cut else found

    def carry(self, data: bytes) -> list[bytes]:
        """Returns what arrives at the far end when a datagram is sent."""
        if self.cut or self._takes("drop"):
            return []
        if self._takes("corrupt"):
            # The length of the header; a number that is merely another one would not be noticed but
            # by UDP's own checksum.
            return [data[:1] + bytes([data[1] ^ 0xFF]) + data[2:]]
        if self._takes("late"):
            self._late.append((self._period + _LATE_PERIODS, data))
            return []
        if self._takes("duplicate"):
            return [data, data]
        if self._kept is None and self._takes("reorder"):
            self._kept = data
            return []
        kept = self._kept
        self._kept = None
        return [data] if kept is None else [data, kept]

    def _takes(self, kind: str) -> bool:
        if not self._left[kind]:
            return False
        self._left[kind] -= 1
        return True
