"""Traces keep stages, openings, speeds and the first observation."""

from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.sim.evaluation.trace import (
    Trace,
    read_first_observation,
    read_trace,
    trace_of_video,
    write_trace,
)
from stringline.sim.rollout.rollout import Rollout

STAGES = ("apart", "lifted", "placed", "success")


def rollout(steps: int) -> Rollout:
    """The left gripper opens evenly, the first joint jumps once by 0.1 rad."""
    actions = np.tile(ALOHA.home, (steps, 1))
    left, right = (index for index, joint in enumerate(ALOHA.joints) if joint.kind != "revolute")
    actions[:, left], actions[:, right] = np.linspace(0, 1, steps), 0.25
    actions[steps // 2 :, 0] += 0.1
    return Rollout(actions=list(actions), stage=3, stage_times={0: 0.02, 1: 1.5, 3: steps / 50})


@pytest.mark.parametrize("steps", [1, 7, 200, 733])
def test_round_trip(tmp_path: Path, steps: int) -> None:
    """A trace has at most 200 samples with all peaks; skipped stages and the first are omitted."""
    contract = ALOHA.contract([], 50.0)
    trace = Trace.of(rollout(steps), STAGES, contract)
    assert trace.names == STAGES
    assert trace.stages == {"lifted": 1.5, "success": steps / 50}
    assert len(trace.time) == len(trace.speed) == len(trace.openings["left"]) == min(steps, 200)
    assert trace.time[0] == 0
    assert (np.diff(trace.time) > 0).all()
    assert (np.diff(trace.openings["left"]) > 0).all()
    assert set(trace.openings["right"]) == {np.float32(0.25)}
    assert trace.speed.max() == pytest.approx(5.0 if steps > 1 else 0.0, rel=1e-4)
    path, seen = (
        trace_of_video(tmp_path / "5.mp4"),
        {"rgb/overhead": np.arange(12, dtype=np.uint8).reshape(2, 2, 3)},
    )
    assert path.name == "5.npz"
    assert read_trace(path) is None
    assert read_first_observation(path) is None
    write_trace(path, trace, seen)
    again = read_trace(path)
    assert again is not None
    assert again.names == trace.names
    assert dict(again.stages) == dict(trace.stages)
    for name in ("time", "speed"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert {arm: course.tolist() for arm, course in again.openings.items()} == {
        arm: course.tolist() for arm, course in trace.openings.items()
    }
    first = read_first_observation(path)
    assert first is not None
    assert list(first) == ["rgb/overhead"]
    np.testing.assert_array_equal(first["rgb/overhead"], seen["rgb/overhead"])
