"""Keys of a real pseudo-terminal: a key that is held down, doubled or buffered counts once."""

import os
import threading
import time

import pytest
from tests.real_robot.operator_hand import Terminal

from stringline.real_robot.operator.operator_keys import Key, TerminalKeys

REPEAT_DELAY_S = 0.5  # A usual one.
REPEAT_S = 1 / 30


def hold_down(far: int, key: bytes, seconds: float) -> None:
    """Types as a terminal does while a key is held down."""
    end = time.monotonic() + seconds
    os.write(far, key)
    time.sleep(min(REPEAT_DELAY_S, seconds))
    while time.monotonic() < end:
        os.write(far, key)
        time.sleep(REPEAT_S)


def type_later(far: int, key: bytes, seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.write, (far, key))
    timer.start()
    return timer


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 1.2], ids=["pressed", "held down"])
def test_a_key_continues_only_after_it_was_up(terminal: Terminal, seconds: float) -> None:
    far, keys = terminal
    typing = threading.Thread(target=hold_down, args=(far, b" ", seconds))
    began = time.monotonic()
    typing.start()
    while keys.pressed() is not Key.HOLD:
        time.sleep(0.02)
    again = type_later(far, b" ", seconds + 1.0)
    assert keys.wait_anew(Key.HOLD, Key.END) is Key.HOLD
    assert time.monotonic() - began >= seconds + 1.0
    typing.join()
    again.join()


def test_a_doubled_key_counts_once(terminal: Terminal) -> None:
    far, keys = terminal
    os.write(far, b" ")
    assert keys.pressed() is Key.HOLD
    timers = [type_later(far, b" ", 0.2), type_later(far, b" ", 0.6), type_later(far, b"q", 0.9)]
    assert keys.wait_anew(Key.HOLD, Key.END) is Key.END
    for timer in timers:
        timer.join()


def test_keys_from_before_a_question_do_not_answer_it(terminal: Terminal) -> None:
    far, keys = terminal
    os.write(far, b"rr q")
    began = time.monotonic()  # Before the timer starts, which may take milliseconds.
    timer = type_later(far, b"r", 1.2)
    assert keys.wait_anew(Key.RESET, Key.END) is Key.RESET
    assert time.monotonic() - began >= 1.2
    timer.join()


def test_other_keys_answer_at_once_and_end_does_while_it_is_held_down(terminal: Terminal) -> None:
    far, keys = terminal
    os.write(far, b" q")
    assert keys.pressed() is Key.HOLD
    assert keys.pressed() is Key.END
    for key, pressed in ((b"h", Key.HOME), (b"q", Key.END)):
        timer = type_later(far, key, 0.2)
        assert keys.wait_anew(Key.HOLD, Key.HOME, Key.END) is pressed
        timer.join()


@pytest.mark.slow
def test_a_toggle_counts_only_after_it_was_up_also_if_nobody_looked(terminal: Terminal) -> None:
    """Keys that waited in the terminal may be from before the pause."""
    far, keys = terminal
    os.write(far, b"t")
    assert keys.pressed() is Key.TAKE_OVER
    os.write(far, b"tt")
    time.sleep(1.0)
    os.write(far, b"t ")
    assert keys.pressed(Key.TAKE_OVER) is Key.HOLD
    for _ in range(5):
        assert keys.pressed(Key.TAKE_OVER) is None
        time.sleep(0.2)
    os.write(far, b"t")
    assert keys.pressed(Key.TAKE_OVER) is Key.TAKE_OVER


def test_without_a_terminal_the_answer_is_the_end() -> None:
    with open(os.devnull) as stream, TerminalKeys(stream) as keys:
        assert keys.wait_anew(Key.RESET, Key.END) is Key.END


def test_the_end_of_a_terminal_is_the_answer_end() -> None:
    far, near = os.openpty()
    with os.fdopen(near) as stream, TerminalKeys(stream) as keys:
        timer = threading.Timer(0.2, os.close, (far,))
        timer.start()
        assert keys.wait_anew(Key.RESET, Key.END) is Key.END
        timer.join()
