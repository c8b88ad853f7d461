"""A connection whose answers to pings need bounded memory."""

import logging

from websockets.asyncio.server import ServerConnection

logger = logging.getLogger(__name__)

# Bytes of answers to pings that a client may leave unread; the clients here send a ping in 20 s.
MOST_PONG_BYTES = 65536


class BoundedConnection(ServerConnection):
    """Ends the connection of a client that sends pings and does not read the answers.

    The library answers each ping at once, whatever the client reads, so that the answers would fill
    the memory.
    """

    _unread_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Takes bytes of the client."""
        before = self.transport.get_write_buffer_size()
        super().data_received(data)
        after = self.transport.get_write_buffer_size()
        self._unread_bytes = self._unread_bytes + max(after - before, 0) if after else 0
        if self._unread_bytes > MOST_PONG_BYTES and not self.transport.is_closing():
            logger.warning("A client does not read the answers to its pings.")
            self.transport.abort()
