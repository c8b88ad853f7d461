"""The recipe of a command contains its choices and options, and no place on a disk."""

import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.command.configuration import command_recipe


def test_the_recipe_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "bake": "defaults: [{flour: wheat}, {oven: null}, _self_]\nloaves: 2\noutput: here",
        "flour/wheat": "dark: false",
        "flour/rye": "dark: true",
        "oven/stone": "minutes: 40",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    line = ["flour=rye", "output=elsewhere", "+spice=salt", "loaves=3"]
    monkeypatch.setattr(sys, "argv", ["bake", *line])
    found: list[dict[str, Any]] = []

    def bake(config: DictConfig) -> None:
        found.append(command_recipe())

    run("bake", bake, folder=tmp_path)
    assert found == [
        {"choices": {"flour": "rye"}, "options": ["flour=rye", "+spice=salt", "loaves=3"]}
    ]
