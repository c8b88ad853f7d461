"""An operator for tests, whose keys follow a script."""

import time
from collections.abc import Callable

from stringline.real_robot.operator.operator_keys import Key, TerminalKeys

Terminal = tuple[int, TerminalKeys]
"""The far end of a terminal, and the keys that are read from it."""


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def after(seconds: float) -> Callable[[], bool]:
    """Returns a function that returns True from `seconds` after its first call on."""
    calls: list[float] = []

    def over() -> bool:
        calls.append(time.monotonic())
        return calls[-1] - calls[0] >= seconds

    return over


class Hand:
    """An operator who presses the keys of a script and answers waits at once."""

    def __init__(
        self, script: list[tuple[Callable[[], bool], Key]], answers: list[Key] | None = None
    ) -> None:
        self.script = list(script)
        self.answers = list(answers or [])
        self.start = time.monotonic()
        self.awaited: list[tuple[Key, ...]] = []
        self.before_answer: Callable[[], None] = lambda: None

    def pressed(self, *anew: Key) -> Key | None:
        assert time.monotonic() - self.start < 60.0, "The time of a key never came."
        return self.script.pop(0)[1] if self.script and self.script[0][0]() else None

    def wait(self, *keys: Key) -> Key:
        self.awaited.append(keys)
        self.before_answer()
        answer = self.answers.pop(0)
        assert answer in keys
        return answer

    def wait_anew(self, *keys: Key) -> Key:
        return self.wait(*keys)


class NoKeys:
    """The keys of a run without an operator."""

    def pressed(self, *anew: Key) -> Key | None:
        return None

    def wait(self, *keys: Key) -> Key:
        return Key.END

    def wait_anew(self, *keys: Key) -> Key:
        return Key.END
