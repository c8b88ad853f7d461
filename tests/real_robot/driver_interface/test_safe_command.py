"""Nobody but the safety filter makes commands."""

import ast
import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from stringline.real_robot.driver_interface.driver import SafeCommand, checked

ROOM = Path(__file__).parents[3] / "real_robot"


def test_a_command_made_by_hand_is_refused() -> None:
    with pytest.raises(TypeError, match="made by the SafetyFilter only"):
        SafeCommand(np.zeros(14), 0, object())


def test_a_command_made_without_the_constructor_is_refused() -> None:
    forged = object.__new__(SafeCommand)
    object.__setattr__(forged, "_position", np.zeros(14))
    with pytest.raises(TypeError, match="Only a SafeCommand made by the SafetyFilter"):
        checked(forged)


def test_it_has_no_subclasses() -> None:
    with pytest.raises(TypeError, match="cannot be derived"):
        type("Relative", (SafeCommand,), {})


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_is_neither_copied_nor_sent(copied: object) -> None:
    assert callable(copied)
    with pytest.raises(TypeError, match="stays in the process"):
        copied(object.__new__(SafeCommand))


def test_only_the_filter_imports_the_seal() -> None:
    users = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.ImportFrom) and any(
                alias.name == "SEAL" for alias in node.names
            )
            if named or (isinstance(node, ast.Attribute) and node.attr in ("SEAL", "_seal")):
                users.add(path.name)
    assert users == {"filter.py"}
