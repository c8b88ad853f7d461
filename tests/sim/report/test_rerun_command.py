"""A shell and Hydra read the command lines with the intended values."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from stringline.datasets.command.application import hydra_value
from stringline.policies.execution.execution import Execution
from stringline.sim.report.report import RerunCommand
from stringline.sim.worlds.task_settings import TaskSettings


def parsed(line: str) -> dict[str, object]:
    """The configuration that Hydra reads from a line for a shell."""
    overrides = OverridesParser.create().parse_overrides(shlex.split(line)[1:])
    return {override.get_key_element(): override.value() for override in overrides}


def test_every_setting_is_named() -> None:
    task = TaskSettings("hand_over_banana", time_limit_s=20.0, options={"table_height": 0.02})
    line = RerunCommand("runs/it's a $(run)/c=1", task, 24, Path("runs/two words")).command(
        1_000_007
    )
    assert line.startswith("stringline-eval ")
    assert parsed(line) == {
        "checkpoint": "runs/it's a $(run)/c=1",
        "task": "hand_over_banana",
        "task.time_limit_s": 20.0,
        "task.frame_hz": 12.5,
        "++task.options.table_height": 0.02,
        "execute_steps": 24,
        "seeds": 1,
        "first_seed": 1_000_007,
        "output": "runs/two words/replays/1000007",
    }


def test_other_executions_than_the_default_are_named() -> None:
    task = TaskSettings("hand_over_banana", time_limit_s=20.0)
    late = Execution("real_time_chunking", delay_s=0.1).overrides()
    found = parsed(RerunCommand("x", task, None, Path("runs/late"), late).command(7))
    assert {key: found[key] for key in ("execute_steps", *late)} == {"execute_steps": None, **late}


@given(
    st.text(
        st.characters(
            codec="utf-8", exclude_characters="\0\r\n", exclude_categories=["Cc", "Zl", "Zp"]
        ),
        max_size=12,
    )
)
def test_any_text(text: str) -> None:
    assert parsed(shlex.join(["stringline-eval", f"key={hydra_value(text)}"])) == {"key": text}


@pytest.mark.parametrize(
    "value",
    [
        "null",
        "TRUE",
        "007",
        "1e3",
        "nan",
        "a\\",
        "\\'",
        "x\\\\'",
        "[a]",
        "ws://127.0.0.1:8765",
        "~/a",
    ],
)
def test_texts_that_hydra_would_read_as_other_types(value: str) -> None:
    read = parsed(shlex.join(["stringline-eval", f"key={hydra_value(value)}"]))["key"]
    assert (read, isinstance(read, str)) == (value, True)


@pytest.mark.parametrize("value", [1, 0.02, -3.5, True, None])
def test_other_values(value: object) -> None:
    assert parsed(f"stringline-eval key={hydra_value(value)}") == {"key": value}
