"""Faults of datagrams on their way, by script: lost, late, duplicated, reordered or damaged."""

from collections import Counter, deque

from stringline.datasets.contract.argument_checks import unknown_name

KINDS = ("drop", "late", "duplicate", "reorder", "corrupt")
_LATE_PERIODS = 3


class FaultyChannel:
    """One direction of a connection. Faults apply to the next datagrams.

    Attributes:
        cut: Whether nothing arrives.
    """

    def __init__(self) -> None:
        self.cut = False
        self._left: Counter[str] = Counter()
        self._late: deque[tuple[int, bytes]] = deque()
        self._kept: bytes | None = None
        self._period = 0

    def plan(self, kind: str, count: int) -> None:
        """Applies a fault to the next `count` datagrams.

        Raises:
            ValueError: The fault is unknown.
        """
        if kind not in KINDS:
            raise unknown_name("fault of a connection", kind, KINDS)
        self._left[kind] += max(count, 1)

    def pass_period(self) -> list[bytes]:
        """Advances by a period and returns the late datagrams that arrive now."""
        self._period += 1
        found = []
        while self._late and self._late[0][0] <= self._period:
            found.append(self._late.popleft()[1])
        return [] if self.cut else found

    def carry(self, data: bytes) -> list[bytes]:
        """Returns the datagrams that arrive at the far end when one is sent."""
        if self.cut or self._takes("drop"):
            return []
        if self._takes("corrupt"):
            # The length of the header; only UDP's own checksum would detect another number.
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
