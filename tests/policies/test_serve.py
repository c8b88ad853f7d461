"""The command line of `stringline-serve` takes the execution of a checkpoint's record."""

from pathlib import Path

import pytest
from tests.policies.checkpoints.records import described

from stringline.policies.serve import with_trained_execution


@pytest.mark.parametrize(
    ("execution", "added"),
    [
        (
            {"name": "temporal_ensembling", "delay_s": 0.0, "decay": 0.1, "execute_steps": 1},
            ["execution=temporal_ensembling", "execution.delay_s=0.0", "execution.decay=0.1"],
        ),
        (
            {"name": "real_time_chunking", "delay_s": 0.1, "execute_steps": 8},
            ["execution=real_time_chunking", "execution.delay_s=0.1"],
        ),
        # Those that a server cannot apply are left to its clients.
        ({"name": "real_time_chunking", "delay_s": "measured", "execute_steps": 8}, []),
        ({"name": "receding_horizon", "delay_s": 0.1, "execute_steps": 8}, []),
        ({"name": "stop_and_go", "delay_s": 0.0, "execute_steps": None}, []),
    ],
)
def test_the_execution_of_the_record_is_served(
    tmp_path: Path, execution: dict[str, object], added: list[str]
) -> None:
    line = [f"checkpoint={described(tmp_path / 'checkpoint', execution=execution)}", "port=0"]
    assert with_trained_execution(line) == [*line, *added]
    given = [*line, "execution=receding_horizon"]
    assert with_trained_execution(given) == given
