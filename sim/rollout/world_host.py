"""The part of a worker that holds the simulated world: one message for each command."""

import tempfile
import traceback
from pathlib import Path

from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.messages import (
    Command,
    EpisodeEnd,
    EpisodeJob,
    MakeWorld,
    Message,
    PlanRequest,
    TaskResult,
    WorkerFailed,
    WorkerReady,
)
from stringline.sim.rollout.rollout import Answer, DelayedChunk, Episode, run_episode
from stringline.sim.rollout.video import Video
from stringline.sim.rollout.world_interface import Simulation


class WorldHost:
    """Holds one world.

    All calls must come from one thread, because a graphics context belongs to one thread.
    """

    def __init__(self, make: MakeWorld) -> None:
        self._make = make
        self._world: Simulation | None = None
        self._episode: Episode | None = None
        self._video: Video | None = None

    def open(self) -> Message:
        """Builds the world and returns `WorkerReady` or `WorkerFailed`."""
        try:
            self._world = self._make()
            return WorkerReady(self._world.contract, tuple(self._world.task.stages))
        except Exception as error:
            return WorkerFailed(error, traceback.format_exc())

    def handle(self, command: Command) -> Message:
        """Handles a job, a task, or the plan for the last request, and returns the next message.

        That is `PlanRequest` or `EpisodeEnd` for a job, `TaskResult` for a task, or `WorkerFailed`.
        """
        assert self._world is not None
        try:
            if isinstance(command, (ActionChunk, DelayedChunk)):
                assert self._episode is not None
                return self._continue(self._episode, command)
            if isinstance(command, EpisodeJob):
                return self._begin(command, self._world)
            return TaskResult(command.run(self._world))
        except Exception as error:
            return WorkerFailed(error, traceback.format_exc())

    def close(self) -> None:
        """Closes the world."""
        if self._world is not None:
            self._world.close()

    def _begin(self, job: EpisodeJob, world: Simulation) -> Message:
        self._video = Video() if job.video else None
        self._episode = run_episode(
            world, job.seed, execute_steps=job.execute_steps, options=job.options, video=self._video
        )
        return PlanRequest(next(self._episode))

    def _continue(self, episode: Episode, answer: Answer) -> Message:
        try:
            return PlanRequest(episode.send(answer))
        except StopIteration as end:
            video = None if self._video is None else _mp4(self._video)
            self._episode = self._video = None
            return EpisodeEnd(end.value, video)


def _mp4(video: Video) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        video.write(path)
        return path.read_bytes()
