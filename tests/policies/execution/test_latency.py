"""Expected delays of plans, and the condition on the executed actions."""

import pytest
from tests.policies.scripted import Keeping, Scripted, seen

from stringline.policies.execution.execution import (
    KEPT,
    ChunkExecutor,
    Execution,
    Latency,
    periods,
)


def test_the_expected_delay_is_the_longest_of_the_latest() -> None:
    latency = Latency(50.0, start=4)
    assert latency.expected == 4
    assert latency.add(0.5) == 25
    assert latency.expected == 25, "only the cold one is known"
    assert latency.add(0.041) == 3
    assert latency.expected == 3
    latency.add(0.12)
    for _ in range(KEPT - 1):
        latency.add(0.02)
        assert latency.expected == 6
    latency.add(0.02)
    assert latency.expected == 1


def test_periods_round_up() -> None:
    assert [periods(seconds, 50.0) for seconds in (0.0, 0.019, 0.02, 0.021, 0.1, 0.3)] == [
        0,
        1,
        1,
        2,
        5,
        15,
    ]


@pytest.mark.parametrize(
    ("delay_s", "execute_steps", "words"),
    [
        (
            0.3,
            2,
            (
                "execute_steps is 2; allowed with a delay of 3 control periods and chunks of 8 "
                "actions: 3 to 5"
            ),
        ),
        (0.3, 6, "execute_steps is 6; allowed .* chunks of 8 actions: 3 to 5"),
        (0.1, None, "execute_steps is 8; allowed .* chunks of 8 actions: 1 to 7"),
        (
            0.5,
            5,
            "chunks of 8 actions: none.*at most 4 control periods, or use execution=stop_and_go",
        ),
    ],
)
def test_plans_that_would_be_too_late_are_rejected_at_once(
    delay_s: float, execute_steps: int | None, words: str
) -> None:
    """The published condition, d <= s <= H - d, for every execution with overlapping plans."""
    for name in ("receding_horizon", "temporal_ensembling", "real_time_chunking"):
        execution = Execution(name, delay_s=delay_s)
        executed = ChunkExecutor(Keeping(8), 0, execution, execute_steps=execute_steps)
        with pytest.raises(ValueError, match=words):
            executed.plan(seen(0))
    stopping = Execution("stop_and_go", delay_s=delay_s)
    executed = ChunkExecutor(Keeping(8), 0, stopping, execute_steps=None)
    assert len(executed.plan(seen(0)).time) == 8


def test_a_horizon_longer_than_the_chunk_is_rejected() -> None:
    executed = ChunkExecutor(Scripted(8), 0, Execution("stop_and_go"), execute_steps=9)
    with pytest.raises(
        ValueError,
        match="execute_steps is 9; allowed: up to 8, the actions of a chunk",
    ):
        executed.plan(seen(0))
    with pytest.raises(ValueError, match="execute_steps is 0; allowed: 1 and above, or null"):
        ChunkExecutor(Scripted(8), 0, Execution(), execute_steps=0)
