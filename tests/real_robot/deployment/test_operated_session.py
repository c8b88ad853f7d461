"""A session of several episodes: start, label, discard, next instruction, and the rates."""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.real_robot.deployment.test_policy_deployment import saved, settings
from tests.real_robot.operator_hand import Terminal, until
from tests.sim.teleop.visitor import Visitor

from stringline import EpisodeStore
from stringline.real_robot.deployment.operated_session import OperatedSession, Operator
from stringline.real_robot.deployment.policy_deployment import PolicyDeployment
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


def visit(port: int, printed: Callable[[], str]) -> None:
    """Labels the first episode, takes over in the second one, and discards it."""
    with Visitor(port) as visitor:
        until(lambda: "y: success" in printed())
        visitor.click("Success")
        until(lambda: "Episode 2 of 2" in printed(), 60.0)
        visitor.click("Start the next episode")
        until(lambda: visitor.key("Lead") or "You lead." in printed(), 60.0)
        until(lambda: visitor.key("Policy continues") or "You led" in printed(), 60.0)
        visitor.click("End the episode")
        until(lambda: printed().count("y: success") == 2, 60.0)
        visitor.click("Discard")


@pytest.mark.slow
def test_two_episodes_by_the_page_on_emulated_arms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy stays loaded; what is discarded is neither stored nor counted."""
    printed: list[str] = []

    def read() -> str:
        printed.append(capsys.readouterr().out)
        return "".join(printed)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def person() -> None:
        until(lambda: "in a browser of this machine" in read(), 60.0)
        visit(port, read)

    thread = threading.Thread(target=person, daemon=True)
    thread.start()
    where = (f"record={tmp_path}/store", f"log.folder={tmp_path}/log", f"page_port={port}")
    how = ("robot.lock_step=false", "take_over=page", "episodes=2", "seconds=2")
    chosen = settings(f"checkpoint={saved(tmp_path / 'checkpoint')}", *where, *how)
    PolicyDeployment(chosen).run()
    thread.join(10.0)
    assert not thread.is_alive()
    assert read().splitlines()[-1].split()[-6:-3] == ["1", "0", "100"]
    store = EpisodeStore.open(tmp_path / "store")
    (name,) = store.names()
    attributes = store.episode(name).attributes
    assert (attributes.success, attributes.interventions) == (True, [])


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
