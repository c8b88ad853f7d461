"""Videos in real time, in a format that browsers play.

The receding horizon: times of plans, observations, executed actions, end of an episode.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sim.in_process import roll_out

from stringline.datasets.contract.contract import ActionDimension, Array, Camera, Contract
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.rollout import Video, depth_in_colours, due_actions, poster


def test_video_round_trip(tmp_path: Path) -> None:
    """Frames, rate, size, format and index at the front; the content is close to the images."""
    video, y = Video(), np.linspace(0, 255, 31).astype(np.uint8)
    images = [np.broadcast_to(np.roll(y, step)[:, None, None], (31, 32, 3)) for step in range(20)]
    for step, image in enumerate(images):
        video.add(step * 0.08, image, np.full((31, 32), 700, np.uint16))
    video.write(tmp_path / "new" / "video.mp4")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["video.mp4"]
    data = (tmp_path / "new" / "video.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    with av.open(str(tmp_path / "new" / "video.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert float(stream.average_rate or 0) == pytest.approx(12.5)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(frames) == 20
    for frame, image in zip(frames, images, strict=True):
        assert frame.shape == (32, 64, 3)
        assert np.abs(frame[:31, :32].astype(int) - image).mean() < 12


def test_depth_colours() -> None:
    """Near is bright, far is dark, none is black; out of range is clipped."""
    image = depth_in_colours(
        np.array([[0, 400, 500, 750, 1000, 2000]], np.uint16), 500, 1000
    ).astype(int)
    assert image[0, 0].tolist() == [0, 0, 0]
    assert image[0, 1].tolist() == image[0, 2].tolist() == [253, 231, 37]
    assert image[0, 4].tolist() == image[0, 5].tolist() == [68, 1, 84]
    assert image[0, 2].sum() > image[0, 3].sum() > image[0, 4].sum()


def test_no_frames(tmp_path: Path) -> None:
    """An empty video is refused; a video of one frame, without any depth, is legal."""
    with pytest.raises(ValueError, match="at least one frame"):
        Video().write(tmp_path / "none.mp4")
    video = Video()
    video.add(0.0, np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8), np.uint16))
    video.write(tmp_path / "one.mp4")
    assert (tmp_path / "one.mp4").stat().st_size > 0


def test_a_poster_is_the_last_frame(tmp_path: Path) -> None:
    video = Video()
    for level in (10, 120, 200):
        video.add(level / 100, np.full((34, 48, 3), level, np.uint8))
    video.write(tmp_path / "video.mp4")
    data = poster(tmp_path / "video.mp4")
    assert data.startswith(b"\xff\xd8\xff")
    with av.open(io.BytesIO(data), "r") as container:
        (frame,) = container.decode(video=0)
    image = frame.to_ndarray(format="rgb24")
    assert image.shape == (34, 48, 3)
    assert np.abs(image.astype(int) - 200).max() < 12


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
