"""Targets between waypoints, and before, after and between chunks."""

import numpy as np
import pytest

from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.safety.target_stages import ChunkSampler


def ramp(start: float, count: int = 5, value: float = 0.0) -> ActionChunk:
    steps = np.arange(count, dtype=np.float64)
    return ActionChunk(
        start + 0.02 * steps, (value + steps[:, None] * [1.0, -1.0]).astype(np.float32)
    )


def target(sampler: ChunkSampler, now: float) -> list[float]:
    found = sampler.target(now)
    assert found is not None
    return [float(value) for value in found]


def test_waypoints_are_met_and_the_way_between_is_straight() -> None:
    sampler = ChunkSampler()
    sampler.replace(ramp(1.0))
    assert target(sampler, 1.0) == [0.0, 0.0]
    assert target(sampler, 1.04) == pytest.approx([2.0, -2.0])
    assert target(sampler, 1.05) == pytest.approx([2.5, -2.5])


def test_the_last_waypoint_is_held_for_one_interval_and_then_the_target_is_none() -> None:
    sampler = ChunkSampler()
    sampler.replace(ramp(1.0))
    assert target(sampler, 1.095) == [4.0, -4.0]
    assert sampler.target(1.101) is None


def test_without_a_chunk_and_before_it_the_target_is_none() -> None:
    sampler = ChunkSampler()
    assert sampler.target(0.0) is None
    sampler.replace(ramp(1.0))
    assert sampler.target(0.99) is None


def test_a_late_chunk_starts_in_its_middle() -> None:
    sampler = ChunkSampler()
    sampler.replace(ramp(1.0))
    sampler.replace(ramp(1.02, value=10.0))
    assert target(sampler, 1.06) == pytest.approx([12.0, 8.0])


def test_until_a_new_chunk_is_due_the_old_one_counts() -> None:
    sampler = ChunkSampler()
    sampler.replace(ramp(1.0))
    sampler.replace(ramp(1.06, value=10.0))
    assert target(sampler, 1.05) == pytest.approx([2.5, -2.5])
    assert target(sampler, 1.06) == pytest.approx([10.0, 10.0])


def test_a_single_waypoint_counts_at_its_time_only() -> None:
    sampler = ChunkSampler()
    sampler.replace(ramp(1.0, count=1))
    assert target(sampler, 1.0) == [0.0, 0.0]
    assert sampler.target(1.001) is None
