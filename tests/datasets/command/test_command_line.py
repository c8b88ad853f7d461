"""Command lines survive a shell and Hydra; the next command is logged ready for a shell."""

import logging
import shlex

import pytest

from stringline.datasets.command.command_line import command_line, report_next


def test_a_command_line_for_a_shell() -> None:
    line = command_line("stringline-train", {"dataset.path": "runs/my runs/a", "output": None})
    assert shlex.split(line) == ["stringline-train", "dataset.path='runs/my runs/a'", "output=null"]


def test_the_next_command_is_logged_by_the_package(caplog: pytest.LogCaptureFixture) -> None:
    """`application.run` sends the log of this package to the terminal from INFO on."""
    with caplog.at_level(logging.INFO, logger="stringline"):
        report_next("stringline-eval", {"checkpoint": "runs/train/checkpoint"})
    (record,) = caplog.records
    assert record.getMessage() == "Next: stringline-eval checkpoint=runs/train/checkpoint"
    assert record.name.startswith("stringline.")
