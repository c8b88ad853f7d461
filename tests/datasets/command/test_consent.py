"""A command line trusts the classes that it names, and keeps the packages of `trust=`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig
from tests.datasets.extensions.conftest import WriteModule

from stringline.datasets.command.application import run
from stringline.datasets.extensions.trust import consented, named_packages, packages_of


def test_named_classes_are_trusted_for_one_command_and_others_are_kept(
    write_module: WriteModule, own_trust: Path
) -> None:
    for name in ("mine", "theirs", "kept"):
        mark = write_module(name, "")
    settings = {
        "policy": {"_target_": "mine.policy:A", "parts": [{"_target_": "theirs:B"}]},
        "trainer": {"_target_": "stringline.Trainer"},
        "path": "other:C",
        "trust": "kept",
    }
    assert consented(settings) == "kept,mine,theirs"
    assert yaml.safe_load(own_trust.read_text()) == ["kept"]
    assert not mark.exists()


@pytest.mark.parametrize(
    ("line", "value", "packages"),
    [
        ("trust=mine", "mine", ("mine",)),
        ("trust=[mine,theirs]", ["mine", "theirs"], ("mine", "theirs")),
        ("trust=[]", [], ()),
        ("seeds=1", None, ()),
    ],
)
def test_the_option_is_a_name_or_a_list(
    line: str, value: object, packages: tuple[str, ...]
) -> None:
    assert packages_of(["x=1", line]) == packages
    assert named_packages(value) == packages


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
    """Runs a small command; returns its settings and the environment variable that it saw."""
    folder = tmp_path / "configs"
    (folder / "flour").mkdir(parents=True)
    (folder / "bake.yaml").write_text("# Bakes.\nloaves: 2\ntrust: []\npart: null\n")

    def see(*arguments: str) -> list[object]:
        found: list[object] = []

        def task(settings: DictConfig) -> None:
            found.extend([dict(settings), os.environ.get("STRINGLINE_TRUST")])

        monkeypatch.setattr(sys, "argv", ["stringline-bake", *arguments])
        run("bake", task, folder=folder)
        return found

    return see


def test_processes_of_the_command_see_its_consent(
    seen: Callable[..., list[object]], write_module: WriteModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module("mine", "")
    assert seen() == [{"loaves": 2, "part": None}, None]
    assert seen("trust=mine") == [{"loaves": 2, "part": None}, "mine"]
    assert seen("trust=[mine]", "part={_target_: 'a_b.c:D'}")[1] == "a_b,mine"
    assert "STRINGLINE_TRUST" not in os.environ
    monkeypatch.setenv("STRINGLINE_TRUST", "given")
    assert seen("trust=mine")[1] == "given,mine"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("trust=not_installed", "no module 'not_installed' on Python's path"),
        ("trust=os", "'os' is part of Python"),
        ("part={_target_: 'os:system'}", "'os' is part of Python"),
    ],
)
def test_wrong_packages_end_the_command_with_one_line(
    seen: Callable[..., list[object]],
    argument: str,
    message: str,
    own_trust: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        seen(argument)
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert not own_trust.exists()
