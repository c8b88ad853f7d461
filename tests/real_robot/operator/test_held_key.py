"""Hold-to-run by a key: only its repetition permits motion."""

import os
from collections.abc import Iterator

import pytest

from stringline.real_robot.ipc.heartbeat import input_memory
from stringline.real_robot.operator.operator_keys import HeldKey, Key, TerminalKeys


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal() -> Iterator[tuple[int, Clock, HeldKey, TerminalKeys]]:
    far, near = os.openpty()
    clock = Clock()
    held = HeldKey(input_memory(), clock)
    with os.fdopen(near) as stream, TerminalKeys(stream, held) as keys:
        yield far, clock, held, keys
    os.close(far)


def permitted(held: HeldKey) -> float:
    return float(held._permission.value)


def test_a_repeated_key_permits_motion_and_a_single_one_does_not(
    terminal: tuple[int, Clock, HeldKey, TerminalKeys],
) -> None:
    far, clock, held, keys = terminal

    def look(text: bytes = b"", after_s: float = 0.02) -> Key | None:
        clock.now += after_s
        os.write(far, text)
        return keys.pressed()

    look()
    assert look(b"g") is None
    assert permitted(held) == 0.0
    for _ in range(20):
        look()  # The delay before a terminal repeats a key.
    for _ in range(5):
        look(b"g")
        look()
    assert permitted(held) == pytest.approx(clock.now - 0.02)
    last = permitted(held)
    for _ in range(20):
        look()
    assert permitted(held) == last
    # Keys from a time in which nobody looked say nothing about the present.
    assert look(b"ggggg", after_s=1.0) is None
    assert permitted(held) == last
    assert look(b"gq") is Key.END


def test_keys_from_before_a_question_do_not_answer_it(
    terminal: tuple[int, Clock, HeldKey, TerminalKeys],
) -> None:
    far, _, _, keys = terminal
    os.write(far, b"qsq")
    keys.forget()
    os.write(far, b"xs")
    assert keys.wait(Key.START, Key.END) is Key.START
