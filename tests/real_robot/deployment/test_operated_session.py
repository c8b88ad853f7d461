"""A session of several episodes: start, label, discard, next instruction, and the rates."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from tests.real_robot.operator_hand import Terminal, until

from stringline.real_robot.deployment.operated_session import OperatedSession, Operator
from stringline.real_robot.operator.operator_keys import TerminalKeys

TEXTS = ("pick the cube", "place the cube")


class Typist:
    """Types keys at a terminal, each when the session has asked a question."""

    def __init__(self, far: int, keys: str, asked: Callable[[], int]) -> None:
        self._thread = threading.Thread(target=self._type, args=(far, keys, asked), daemon=True)
        self._thread.start()

    def _type(self, far: int, keys: str, asked: Callable[[], int]) -> None:
        for number, key in enumerate(keys, 1):
            until(lambda number=number: asked() >= number)  # type: ignore[misc]
            time.sleep(1.0)  # A key counts if it was up before.
            os.write(far, key.encode())


def run(
    session: OperatedSession, judged: bool | None, helped: Sequence[bool]
) -> list[tuple[str, bool | None, bool]]:
    """Runs a session; returns instruction, label and whether the recording is kept."""
    found = []
    while session.begins_another():
        text = session.instruction
        found.append((text, *session.label(judged, helped=helped[session.number])))
    session.report()
    return found


@pytest.mark.slow
def test_an_operator_labels_discards_changes_the_instruction_and_ends(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    far, keys = terminal
    printed: list[str] = []

    def asked() -> int:
        printed.append(capsys.readouterr().out)
        return "".join(printed).count("y: success") + "".join(printed).count("The arms hold.")

    session = OperatedSession(Operator(keys), lambda: True, 20, TEXTS)
    Typist(far, "ysnsxisyq", asked)
    assert run(session, None, [False, True, False, True]) == [
        ("pick the cube", True, True),
        ("pick the cube", False, True),
        ("pick the cube", None, False),
        ("place the cube", True, True),
    ]
    table = ("".join(printed) + capsys.readouterr().out).split("instruction ")[-1].splitlines()
    assert table[1].split()[3:7] == ["2", "1", "50", "%"]  # A discarded episode does not count.
    assert table[2].split()[3:7] == ["1", "1", "0", "%"]  # Nor is one with a takeover a success.


def test_without_keys_the_world_of_emulated_arms_judges(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open(os.devnull) as nothing, TerminalKeys(nothing) as keys:
        session = OperatedSession(Operator(keys), lambda: True, 3, TEXTS[:1])
        assert run(session, True, [False] * 3) == [(TEXTS[0], True, True)] * 3
    assert capsys.readouterr().out.splitlines()[1].split()[3:6] == ["3", "0", "100"]


def test_a_single_episode_is_neither_labelled_nor_counted(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    session = OperatedSession(Operator(terminal[1]), lambda: True, 1, TEXTS)
    assert run(session, None, [False]) == [(TEXTS[0], None, True)]
    assert not capsys.readouterr().out
