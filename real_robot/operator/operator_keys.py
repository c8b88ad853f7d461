"""The operator's keys, read from the terminal without waiting, and hold-to-run by one of them.

A terminal repeats a key while it is held down.
"""

import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import c_double
from enum import Enum
from typing import Protocol, Self, TextIO

# A terminal repeats a key 25 to 30 times a second.
_GAP_S = 0.15
# Keys that waited for longer in the terminal say nothing about the present.
_STALE_S = 0.1


class HeldKey:
    """Permits motion while a key is repeated.

    A single press does not: the second one within 0.15 s is the first that counts. So motion begins
    with the terminal's repetition, about half a second after the key goes down.

    Args:
        permission: Memory of the time of the last permission.
    """

    def __init__(self, permission: c_double, clock: Callable[[], float] = time.monotonic) -> None:
        self._permission = permission
        self._clock = clock
        self._looked_s = self._pressed_s = float("-inf")
        self._prompt = False

    def look(self) -> None:
        """Notes that the terminal is read now."""
        now = self._clock()
        self._prompt = now - self._looked_s <= _STALE_S
        self._looked_s = now

    def press(self) -> None:
        """Notes that the key was read."""
        if not self._prompt:
            self._pressed_s = float("-inf")
            return
        now = self._clock()
        if now - self._pressed_s <= _GAP_S:
            self._permission.value = now
        self._pressed_s = now


log = logging.getLogger(__name__)

# A key is up if it was silent for longer than a terminal waits before it repeats a key that is held
# down: 0.66 s by default in X11, less in other desktops; a remote terminal may add some jitter.
_RELEASED_S = 0.8
_LOOK_S = 0.05  # Time between two looks at the terminal while a key is awaited.


class Key(Enum):
    """A key and its action, see `MESSAGES`."""

    HOLD = " "
    END = "q"
    HOME = "h"
    RESET = "r"
    TAKE_OVER = "t"
    KEEP = "k"
    START = "s"
    RUN = "g"
    SUCCESS = "y"
    FAILURE = "n"
    DISCARD = "x"
    INSTRUCTION = "i"


MESSAGES = {
    Key.HOLD: "space: hold, again: continue",
    Key.END: "q: stop softly and end",
    Key.HOME: "h: stop softly, move to the home pose and end",
    Key.RESET: "r: continue after a fault",
    Key.TAKE_OVER: "t: take over, again: give back",
    Key.KEEP: "k: keep a log of the last seconds",
    Key.START: "s: start the motion",
    Key.RUN: "g, held down: the arms may move",
    Key.SUCCESS: "y: success",
    Key.FAILURE: "n: failure",
    Key.DISCARD: "x: discard the recording",
    Key.INSTRUCTION: "i: next instruction",
}

# Keys that stop a motion to a pose: all but the key that has started it, which may still be held
# down, and the key of hold-to-run.
STOPS = (Key.HOLD, Key.END, Key.HOME, Key.RESET, Key.TAKE_OVER, Key.KEEP)


class Keys(Protocol):
    """A source of keys."""

    def pressed(self, *anew: Key) -> Key | None:
        """Returns the next operator key that was pressed, or None.

        A key of `anew` counts only if it was up before: not while it is held down, nor if it is
        pressed twice in a row.
        """
        ...

    def wait(self, *keys: Key) -> Key:
        """Waits for one of these keys; returns `Key.END` at once without a source of keys."""
        ...

    def wait_anew(self, *keys: Key) -> Key:
        """As `wait`, for a key that is pressed from now on and was up before.

        `Key.END` also counts while it is held down.
        """
        ...


class TerminalKeys:
    """The keys of a terminal, each at once and without echo.

    A context manager that restores the terminal. Ctrl-C works as always.

    Args:
        stream: The terminal; if None, standard input.
        held: Receives `Key.RUN` of hold-to-run, which is never returned.
    """

    def __init__(self, stream: TextIO | None = None, held: HeldKey | None = None) -> None:
        self._held = held
        found: TextIO | None = sys.stdin if stream is None else stream
        try:
            self._terminal = -1 if found is None else found.fileno()
        except (OSError, ValueError):  # Standard input may be closed, or not a file.
            self._terminal = -1
        self._before = ""
        self._watched = self.available
        self._empty_s = float("-inf")  # Time of the last look that found no key.
        self._read_s: dict[Key, float] = {}  # Time of the last reading of each key.
        self._was_up = False  # Whether the key read last was up before.

    @property
    def available(self) -> bool:
        """Whether the stream is a terminal."""
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

    def pressed(self, *anew: Key) -> Key | None:
        """Returns the next operator key or None; `Key.END` when the terminal hangs up."""
        if self._held is not None:
            self._held.look()
        while (key := self._next(0.0)) in anew and not self._was_up:
            pass
        if self._watched and not self.available:
            self._watched = False
            return Key.END
        return key

    def wait(self, *keys: Key) -> Key:
        """Waits for one of these keys; returns `Key.END` at once without a terminal."""
        while self.available:
            if (key := self._next(None)) in keys and key is not None:
                return key
        return Key.END

    def wait_anew(self, *keys: Key) -> Key:
        """Waits for one of these keys, pressed from now on; `Key.END` without a terminal."""
        self.forget()
        while self.available:
            key = self._next(_LOOK_S)
            if key is not None and key in keys and (self._was_up or key is Key.END):
                return key
        return Key.END

    def forget(self) -> None:
        """Drops the keys that were pressed before now."""
        while self._next(0.0) is not None:
            pass

    def _next(self, timeout_s: float | None) -> Key | None:
        known = {key.value: key for key in Key}
        while self.available and select.select([self._terminal], [], [], timeout_s)[0]:
            try:
                byte = os.read(self._terminal, 1)
            except OSError:  # The terminal hung up.
                byte = b""
            if not byte:
                self._terminal = -1
            key = known.get(byte.decode("ascii", "replace").lower())
            if key is Key.RUN:
                if self._held is not None:
                    self._held.press()
            elif key is not None:
                self._note(key)
                return key
        self._empty_s = time.monotonic()
        return None

    def _note(self, key: Key) -> None:
        """Notes that a key was read. It was pressed after the last look that found no key."""
        before_s = self._read_s.get(key, float("-inf"))
        self._was_up = self._empty_s - before_s > _RELEASED_S
        self._read_s[key] = time.monotonic()

    def _stty(self, *arguments: str) -> str:
        # By a program, since within this package only the servo bus may set terminals (a test
        # checks that).
        done = subprocess.run(
            ["stty", *arguments], stdin=self._terminal, capture_output=True, text=True, check=False
        )
        if done.returncode:
            log.warning(
                "The terminal cannot be set (%s); press the return key after each key.",
                done.stderr.strip(),
            )
        return done.stdout.strip()
