"""An episode of a policy in simulation, in a process that holds the world, and its video."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.chunks.chunk import ActionChunk, periods_covered
from stringline.sim.rollout.world_interface import HasBodyPositions, HasDraws, Simulation

Image = NDArray[np.uint8]

POSTER_QUALITY = 5  # Of JPEG in FFmpeg: 2 (best) to 31.

# Five colours of matplotlib's viridis (Smith, van der Walt, 2015), from far to near.
_ANCHORS = np.array(
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float64
)
_COLOURS = np.stack(
    [np.interp(np.linspace(0, 4, 256), np.arange(5), channel) for channel in _ANCHORS.T], axis=1
).astype(np.uint8)


def depth_in_colours(depth: NDArray[np.uint16], nearest: float, farthest: float) -> Image:
    """Returns an image (H, W, 3) of depth (H, W): yellow is near, violet far, black no depth (0).

    All arguments are in the depth unit of the camera.
    """
    scale = 255.0 / max(farthest - nearest, 1.0)
    level = np.clip((farthest - depth.astype(np.float64)) * scale, 0, 255).astype(np.uint8)
    return np.where((depth == 0)[..., None], np.uint8(0), _COLOURS[level])


class Video:
    """Frames in memory, written as a file at the end.

    Each frame is an image (H, W, 3) with its depth (H, W), if any, on the right. The first frame
    sets the range of the depth colours of all frames.
    """

    def __init__(self) -> None:
        self._frames: list[Image] = []
        self._times: list[float] = []
        self._range: tuple[float, float] | None = None

    def __len__(self) -> int:
        """Returns the number of frames."""
        return len(self._frames)

    def add(self, time: float, rgb: Image, depth: NDArray[np.uint16] | None = None) -> None:
        """Appends a frame that was captured at `time`, seconds."""
        parts = [rgb]
        if depth is not None:
            if self._range is None:
                seen = depth[depth > 0]
                self._range = (
                    (float(np.quantile(seen, 0.02)), float(np.quantile(seen, 0.98)))
                    if seen.size
                    else (0.0, 1.0)
                )
            parts.append(depth_in_colours(depth, *self._range))
        self._frames.append(np.concatenate(parts, axis=1))
        self._times.append(time)

    def write(self, path: Path) -> None:
        """Encodes the video in real time; the file appears when it is complete."""
        if not self._frames:
            raise ValueError("A video needs at least one frame.")
        period = float(np.median(np.diff(self._times))) if len(self) > 1 else 1.0
        path.parent.mkdir(parents=True, exist_ok=True)
        frame_hz = Fraction(1.0 / period).limit_denominator(1000)
        encode(path, self._frames, frame_hz, self._frames[0].shape[:2])


def encode(path: Path, frames: Iterable[Image], frame_hz: Fraction, size: tuple[int, ...]) -> None:
    """Encodes images (H, W, 3) of a `size` (H, W) as MP4; the file appears when it is complete."""
    fresh = path.with_name(f".{path.name}")
    _encode(fresh, frames, frame_hz, size)
    fresh.replace(path)


def poster(path: Path) -> bytes:
    """Returns the last frame of a video as JPEG: the outcome of the episode."""
    with av.open(str(path)) as container:
        *_, last = container.decode(video=0)
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width = last.width
    encoder.height = last.height
    encoder.pix_fmt = "yuvj420p"
    encoder.time_base = Fraction(1, 1)
    encoder.options = {"qmin": str(POSTER_QUALITY), "qmax": str(POSTER_QUALITY)}
    packets = [*encoder.encode(last.reformat(format="yuvj420p")), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


def _encode(path: Path, frames: Iterable[Image], frame_hz: Fraction, size: tuple[int, ...]) -> None:
    # The halved colour resolution of yuv420p needs even sizes.
    height, width = (side + side % 2 for side in size)
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream(
            "libx264", rate=frame_hz, options={"crf": "27", "preset": "veryfast"}
        )
        stream.height = height
        stream.width = width
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # The other cores simulate.
        for image in frames:
            padded = np.pad(
                image,
                ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0)),
                mode="edge",
            )
            container.mux(stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")))
        container.mux(stream.encode())


@dataclass(frozen=True)
class DelayedChunk:
    """A plan that takes effect some control periods after its observation.

    Actions that are past by then are skipped.
    """

    chunk: ActionChunk
    delay_steps: int = 0


Answer = ActionChunk | DelayedChunk


@dataclass
class Rollout:
    """The course of an episode.

    Attributes:
        stage: The furthest stage.
        time_s: Simulated seconds at the end.
        actions: Executed actions, (A,) each.
        stage_times: Time of the first arrival at each stage, seconds; without skipped stages.
        starved: Control periods without a planned action, in which the last action was held.
        motion: Positions (nq,) of all joints of the world by time, seconds, at each frame of a
            video and at the end; empty without a video.
        drawn: What the episode has drawn by option, see `HasDraws`.
    """

    success: bool = False
    stage: int = 0
    time_s: float = 0.0
    plans: int = 0
    actions: list[NDArray[Any]] = field(default_factory=list)
    unstable: bool = False
    stage_times: dict[int, float] = field(default_factory=dict)
    starved: int = 0
    motion: dict[float, NDArray[np.float64]] = field(default_factory=dict)
    drawn: Mapping[str, Any] = field(default_factory=dict)


Episode = Generator[dict[str, Array], Answer, Rollout]


def run_episode(
    world: Simulation,
    seed: int,
    *,
    execute_steps: int | None,
    options: Mapping[str, Any] | None = None,
    video: Video | None = None,
) -> Episode:
    """Runs one episode with a receding horizon until success or the end of the time.

    The policy plans a chunk, its first actions are executed, and the policy plans again. Each
    control period executes the last action of the chunk that is due. The previous chunk stays in
    effect until the next one arrives; when it has run out, its last action is held. Cameras deliver
    frames at their own rate, so the observations are as old as on a robot.

    Args:
        world: The world.
        seed: Seed of the initial state.
        execute_steps: Control periods between two plans, at least 1; if None, the length of the
            chunk.
        options: Options of the task.
        video: Receives every frame of `overhead`, or else of the first camera.

    Yields:
        Observations; send the chunk that answers each, or a delayed one.
    """
    world.begin(seed, options)
    camera = _video_camera(world.contract)
    done = Rollout(drawn=dict(world.drawn) if isinstance(world, HasDraws) else {})
    plans = PlannedActions(execute_steps, world.contract.control_hz)
    observation: dict[str, Array] = {}
    while True:
        wants_plan = plans.wants_plan
        if world.frame_due or wants_plan:
            observation = world.observe()
            if video is not None and world.frame_due:
                _record(video, camera, observation)
                _record_motion(done, world, float(observation["time"]))
        if wants_plan:
            plans.add((yield observation), float(observation["time"]))
            done.plans += 1
        done.actions.append(plans.next())
        outcome = world.advance(done.actions[-1])
        done.stage_times.setdefault(outcome.stage, outcome.time)
        if outcome.success or outcome.expired:
            done.success = outcome.success
            done.stage = outcome.stage
            done.time_s = outcome.time
            done.unstable = outcome.unstable
            done.starved = plans.starved
            if video is not None:
                _record_motion(done, world, outcome.time)
            return done


class PlannedActions:
    """The current plan and the one on its way; time is counted in control periods."""

    def __init__(self, execute_steps: int | None, control_hz: float) -> None:
        self._execute_steps = execute_steps
        self._hz = control_hz
        self._step = 0
        self._plan_at = 0
        self.starved = 0
        self._due = list[NDArray[np.float64]]()
        self._start = 0
        self._last = np.zeros(0)
        self._next: tuple[int, int, list[NDArray[np.float64]]] | None = None

    @property
    def wants_plan(self) -> bool:
        """Whether a plan is due in this period and no other one is on its way."""
        return self._step >= self._plan_at and (self._next is None or self._next[0] <= self._step)

    def add(self, answer: Answer, now: float) -> None:
        """Adds the plan for the observation of this period, which was made at time `now`."""
        plan = DelayedChunk(answer) if isinstance(answer, ActionChunk) else answer
        self._switch()
        covered = max(periods_covered(plan.chunk, now, self._hz), 1)
        due = due_actions(plan.chunk, now, 1.0 / self._hz, max(covered, self._execute_steps or 1))
        self._plan_at = self._step + (self._execute_steps or covered)
        # Before the first plan nothing moves, so it has no delay.
        effective = self._step + (plan.delay_steps if self._due else 0)
        self._next = (effective, self._step, due)

    def next(self) -> NDArray[np.float64]:
        """Returns the action (A,) of this period and advances to the next one."""
        self._switch()
        index = self._step - self._start
        if index < len(self._due):
            self._last = self._due[index]
        else:
            self.starved += 1
        self._step += 1
        return self._last

    def _switch(self) -> None:
        if self._next is not None and self._next[0] <= self._step:
            _, self._start, self._due = self._next
            self._next = None


def due_actions(
    chunk: ActionChunk, now: float, period: float, count: int
) -> list[NDArray[np.float64]]:
    """Returns the actions (A,) of the next `count` control periods, each the last that is due."""
    times = now + period * np.arange(count)
    if chunk.time[-1] < times[-1] - period / 2:
        raise ValueError(
            f"The policy planned a chunk of {chunk.time[-1] - now + period:.2f} s; execute_steps "
            f"needs {count * period:.2f} s. Lower execute_steps."
        )
    indices = np.searchsorted(chunk.time, times + period / 2) - 1
    return [chunk.action[index].astype(np.float64) for index in np.maximum(indices, 0)]


def _video_camera(contract: Contract) -> str:
    names = [camera.name for camera in contract.cameras]
    return names[0] if names and "overhead" not in names else "overhead"


def _record_motion(rollout: Rollout, world: Simulation, time: float) -> None:
    # Other worlds have a video from their camera only.
    if isinstance(world, HasBodyPositions):
        rollout.motion[time] = world.body_positions()


def _record(video: Video, camera: str, observation: Mapping[str, Array]) -> None:
    if f"rgb/{camera}" not in observation:
        raise unknown_name(
            "camera of the video",
            f"rgb/{camera}",
            [key for key in observation if key.startswith("rgb/")],
        )
    video.add(
        float(observation[f"time/{camera}"]),
        observation[f"rgb/{camera}"],
        observation.get(f"depth/{camera}"),
    )
