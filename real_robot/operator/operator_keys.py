"""The keys of whoever stands beside the arms, read from the terminal without waiting."""

import logging
import os
import select
import subprocess
import sys
from enum import Enum
from typing import Protocol, Self, TextIO

log = logging.getLogger(__name__)


class Key(Enum):
    """What a key asks for."""

    HOLD = " "  # Hold where the arms are, and go on when it is pressed again.
    END = "q"
    HOME = "h"
    RESET = "r"
    TAKE_OVER = "t"
    KEEP = "k"


IN_WORDS = {
    Key.HOLD: "space: hold, again: go on",
    Key.END: "q: stop softly and end",
    Key.HOME: "h: stop softly, move to the home pose and end",
    Key.RESET: "r: go on after a fault",
    Key.TAKE_OVER: "t: take over with the leaders, again: give back",
    Key.KEEP: "k: keep a log of the last seconds",
}


class Keys(Protocol):
    """Where keys come from."""

    def pressed(self) -> Key | None:
        """Returns the next key that was pressed and means something, if there is one."""
        ...

    def wait(self, *keys: Key) -> Key:
        """Waits for one of these keys; where there are none, `Key.END` comes at once."""
        ...


class NoKeys:
    """Nobody is there."""

    def pressed(self) -> Key | None:
        """Returns nothing."""
        return None

    def wait(self, *keys: Key) -> Key:
        """Ends."""
        return Key.END


class TerminalKeys:
    """Keys of a terminal, each at once and without echo; a context manager that leaves the terminal as it was.

    Ctrl-C keeps its meaning. Without a terminal there are no keys, which `available` says.

    Args:
        stream: The terminal; standard input unless told otherwise.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        found: TextIO | None = sys.stdin if stream is None else stream
        try:
            self._terminal = -1 if found is None else found.fileno()
        except (OSError, ValueError):  # Standard input may be closed or no file at all.
            self._terminal = -1
        self._before = ""
        self._watched = self.available

    @property
    def available(self) -> bool:
        """Whether there is a terminal."""
        return self._terminal >= 0 and os.isatty(self._terminal)

    def __enter__(self) -> Self:
        if self.available:
            self._before = self._stty("-g")
            self._stty("-icanon", "-echo", "min", "1", "time", "0")
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            self._stty(self._before)
            self._before = ""

    def pressed(self) -> Key | None:
        """Returns the next key that was pressed and means something, if there is one; `Key.END` once the terminal hangs up."""
        key = self._next(0.0)
        if self._watched and not self.available:
            self._watched = False
            return Key.END
        return key

    def wait(self, *keys: Key) -> Key:
        """Waits for one of these keys; without a terminal `Key.END` comes at once."""
        while self.available:
            if (key := self._next(None)) in keys and key is not None:
                return key
        return Key.END

    def _next(self, timeout_s: float | None) -> Key | None:
        known = {key.value: key for key in Key}
        while self.available and select.select([self._terminal], [], [], timeout_s)[0]:
            try:
                byte = os.read(self._terminal, 1)
            except OSError:  # The terminal hung up.
                byte = b""
            if not byte:
                self._terminal = -1
            if (key := known.get(byte.decode("ascii", "replace").lower())) is not None:
                return key
        return None

    def _stty(self, *arguments: str) -> str:
        # By the program: within this package only the servo bus may set terminals, which a test
        # sees to.
        done = subprocess.run(
            ["stty", *arguments], stdin=self._terminal, capture_output=True, text=True, check=False
        )
        if done.returncode:
            log.warning(
                "The terminal cannot be set (%s); end each key with the return key.",
                done.stderr.strip(),
            )
        return done.stdout.strip()
