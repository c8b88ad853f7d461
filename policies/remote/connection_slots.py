"""Slots of connected clients: when all are taken, an idle client gives way to a new one."""

import time
from dataclasses import dataclass, field

from websockets.asyncio.server import ServerConnection

# A client of arms asks several times in this time, unless an operator lets it pause.
IDLE_S = 10.0


@dataclass(eq=False)
class Slot:
    """The slot of a client.

    Attributes:
        connection: Its connection.
        since_s: Time of its connection or of its last answer.
        asked: Whether it has asked for anything.
        waits: Whether it waits for an answer.
    """

    connection: ServerConnection
    since_s: float = field(default_factory=time.monotonic)
    asked: bool = False
    waits: bool = False

    def begin(self) -> float:
        """Notes the arrival of a request; returns the pause before it in seconds."""
        self.asked = True
        self.waits = True
        return time.monotonic() - self.since_s

    def end(self) -> None:
        """Notes the answer."""
        self.waits = False
        self.since_s = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it gives way to a new client."""
        return not self.waits and (not self.asked or time.monotonic() - self.since_s > IDLE_S)


class Slots:
    """The slots of a server.

    Clients that have asked for nothing give way first, then those that have been idle for more than
    ten seconds; among these, the one that has been idle for longest.

    Args:
        count: Number of slots.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._taken: list[Slot] = []

    def enter(self, connection: ServerConnection) -> tuple[Slot | None, Slot | None]:
        """Returns the slot of a new client, and the one that gave way to it; None: no slot."""
        gone = None
        if len(self._taken) >= self.count:
            idle = [slot for slot in self._taken if slot.is_idle]
            if not idle:
                return None, None
            gone = min(idle, key=lambda slot: (slot.asked, slot.since_s))
            self.leave(gone)
        self._taken.append(Slot(connection))
        return self._taken[-1], gone

    def leave(self, slot: Slot) -> None:
        """Frees the slot of a client, unless another one has it already."""
        if slot in self._taken:
            self._taken.remove(slot)
