"""The receding horizon: times of plans, observations, executed actions, end of an episode."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sim.in_process import roll_out

from stringline.datasets.contract.contract import ActionDimension, Array, Camera, Contract
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.rollout import due_actions
from stringline.sim.rollout.video import Video

CONTRACT = Contract(
    "point",
    "line",
    10.0,
    (Camera("overhead", 4, 4),),
    ("x",),
    (),
    (ActionDimension("x", "one", "joint"),),
)


@dataclass
class Outcome:
    """The outcome of a step."""

    success: bool
    stage: int
    time: float
    expired: bool
    unstable: bool = False


@dataclass
class Task:
    """Two stages."""

    stages: tuple[str, ...] = ("start", "there")


class Line:
    """A point that jumps to its target, with success at a goal and a frame in every third step."""

    contract, task = CONTRACT, Task()

    def begin(self, seed: int | None = None, options: Mapping[str, float] | None = None) -> None:
        """Starts at 0; the seed is the goal."""
        self.goal, self.limit = seed, (options or {}).get("limit", 2.0)
        self.x, self.step, self.frame = 0.0, 0, np.zeros((4, 4, 3), np.uint8)

    @property
    def frame_due(self) -> bool:
        """Every third step."""
        return self.step % 3 == 0

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Images are as bright as the step at which they were taken."""
        if self.frame_due:
            self.frame = np.full((4, 4, 3), self.step, np.uint8)
        time = np.asarray(self.step / 10)
        position = np.array([self.x], np.float32)
        return {
            "time": time,
            "joints/position": position,
            "rgb/overhead": self.frame,
            "time/overhead": time - self.step % 3 / 10,
        }

    def advance(self, action: NDArray[np.float64]) -> Outcome:
        """Jumps to the target."""
        self.x, self.step = float(action[0]), self.step + 1
        there = self.x == self.goal
        return Outcome(there, int(there), self.step / 10, self.step / 10 >= self.limit - 1e-9)

    def close(self) -> None:
        """Does nothing."""


class Counter:
    """Plans to count on from the position of the point, and keeps its observations."""

    def __init__(self, length: int) -> None:
        self.length, self.seen = length, list[tuple[float, int]]()

    def __call__(self, observation: Mapping[str, Array]) -> ActionChunk:
        self.seen.append((float(observation["time"]), int(observation["rgb/overhead"][0, 0, 0])))
        ahead = np.arange(self.length)
        action = (observation["joints/position"] + 1 + ahead[:, None]).astype(np.float32)
        return ActionChunk(float(observation["time"]) + ahead / 10, action)


@pytest.mark.parametrize("execute_steps", [1, 2, 5, 8])
def test_counts_to_the_goal(execute_steps: int) -> None:
    """At any rate of plans, a steady plan is executed completely, and success ends the episode."""
    plan = Counter(8)
    done = roll_out(Line(), plan, 13, execute_steps=execute_steps)
    assert (done.success, done.stage, done.time_s) == (True, 1, 1.3)
    assert [float(action[0]) for action in done.actions] == list(range(1, 14))
    assert done.plans == len(plan.seen) == -(-13 // execute_steps)
    assert [time for time, _ in plan.seen] == [step / 10 for step in range(0, 13, execute_steps)]


def test_images_are_the_latest_ones() -> None:
    """Between two frames, the policy sees the latest frame, not that of the previous plan."""
    plan = Counter(8)
    roll_out(Line(), plan, 13, execute_steps=5)
    assert [frame for _, frame in plan.seen] == [0, 3, 9]


def test_time_limit() -> None:
    """Without success the episode lasts until its limit."""
    done = roll_out(Line(), Counter(4), -1, execute_steps=4, options={"limit": 0.7})
    assert (done.success, done.stage, done.time_s, len(done.actions)) == (False, 0, 0.7, 7)


def test_video_has_every_frame_once() -> None:
    """One frame per delivery of the camera."""
    video = Video()
    roll_out(Line(), Counter(8), 13, execute_steps=5, video=video)
    assert len(video) == len(range(0, 13, 3))
    line = Line()
    line.contract = replace(CONTRACT, cameras=(Camera("top", 4, 4),))
    with pytest.raises(ValueError, match="no camera of the video 'rgb/top'"):
        roll_out(line, Counter(8), 13, execute_steps=5, video=Video())


def _chunk(times: list[float]) -> ActionChunk:
    return ActionChunk(np.array(times), np.arange(len(times), dtype=np.float32)[:, None])


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.0, 0.1, 0.2, 0.3], [0, 1, 2, 3]),
        ([0.0, 0.1 + 1e-9, 0.2 - 1e-9, 0.3], [0, 1, 2, 3]),
        ([0.0, 0.2, 0.4], [0, 0, 1, 1]),
        ([0.05 * k for k in range(8)], [0, 2, 4, 6]),
        ([-0.2, -0.1, 0.0, 0.1, 0.2, 0.3], [2, 3, 4, 5]),
    ],
)
def test_actions_are_taken_when_they_are_due(times: list[float], expected: list[int]) -> None:
    """At other rates than the world's, each period takes the last action that is due."""
    shifted = _chunk([time + 7.0 for time in times])
    assert [int(action[0]) for action in due_actions(shifted, 7.0, 0.1, 4)] == expected


def test_too_short_a_chunk() -> None:
    """The execution of more steps than planned is refused; the error has both numbers."""
    plan: Any = Counter(4)
    with pytest.raises(ValueError, match=r"planned a chunk of 0.40 s; execute_steps needs 0.50 s"):
        roll_out(Line(), plan, 13, execute_steps=5)
