"""The log of the connections of a WebSocket server, which strangers cannot fill."""

import logging


class OneLine(logging.Filter):
    """Reports a connection that ends before its handshake in one line, without a traceback.

    Everybody who reaches the port can cause such reports, before any token is asked for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Shortens a record; keeps all."""
        if record.msg == "opening handshake failed" and record.exc_info:
            error = record.exc_info[1]
            why = " ".join(str(error).split())[:200] or type(error).__name__
            record.msg = "A connection ended before its handshake: %s"
            record.args = (why,)
            record.exc_info = None
            record.exc_text = None
        return True


def connection_log(name: str) -> logging.Logger:
    """Returns a logger for servers of websockets: one line for each failed handshake."""
    log = logging.getLogger(name)
    if not any(isinstance(one, OneLine) for one in log.filters):
        log.addFilter(OneLine())
    return log
