"""Command lines survive a shell and Hydra; the next command is logged ready for a shell."""

import logging
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from stringline.datasets.command.command_line import command_line, report_next


def test_a_command_line_for_a_shell() -> None:
    line = command_line("stringline-train", {"dataset.path": "runs/my runs/a", "output": None})
    assert shlex.split(line) == ["stringline-train", "dataset.path='runs/my runs/a'", "output=null"]


def test_ranges_and_lists_are_written_as_hydra_reads_them() -> None:
    options = {"dim_light": [0.0, 1.0], "looks": {"one_of": ["plain", "textured"]}}
    line = command_line("stringline-eval", {f"++{name}": value for name, value in options.items()})
    parser = OverridesParser.create()
    found = [parser.parse_override(word) for word in shlex.split(line)[1:]]
    assert {each.key_or_group: each.value() for each in found} == options


def test_the_next_command_is_logged_by_the_package(caplog: pytest.LogCaptureFixture) -> None:
    """`application.run` sends the log of this package to the terminal from INFO on."""
    with caplog.at_level(logging.INFO, logger="stringline"):
        report_next("stringline-eval", {"checkpoint": "runs/train/checkpoint"})
    (record,) = caplog.records
    assert record.getMessage() == "Next: stringline-eval checkpoint=runs/train/checkpoint"
    assert record.name.startswith("stringline.")
