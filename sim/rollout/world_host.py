"""What runs beside a simulated world, wherever that is: it takes one message and gives one back."""

import tempfile
import traceback
from pathlib import Path

from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.messages import (
    Asked,
    Command,
    Ended,
    Failed,
    Job,
    MakeWorld,
    Message,
    Ready,
    Returned,
)
from stringline.sim.rollout.rollout import Answer, Arrival, Episode, Simulation, run_episode
from stringline.sim.rollout.video import Video


class WorldHost:
    """Holds one world; every call must come from the same thread, for graphics contexts belong to one."""

    def __init__(self, make: MakeWorld) -> None:
        """Builds nothing yet.

        Args:
            make: Builds the world.
        """
        self._make = make
        self._world: Simulation | None = None
        self._episode: Episode | None = None
        self._video: Video | None = None

    def open(self) -> Message:
        """Builds the world and returns `Ready`, or `Failed`."""
        try:
            self._world = self._make()
            return Ready(self._world.contract, tuple(self._world.task.stages))
        except Exception as error:
            return Failed(error, traceback.format_exc())

    def take(self, command: Command) -> Message:
        """Carries on until there is something to say.

        Args:
            command: A job or an errand to begin, or the answer to what was asked last.

        Returns:
            `Asked` and `Ended` for a job, `Returned` for an errand, `Failed` for either.
        """
        assert self._world is not None
        try:
            if isinstance(command, (ActionChunk, Arrival)):
                assert self._episode is not None
                return self._go_on(self._episode, command)
            if isinstance(command, Job):
                return self._begin(command, self._world)
            return Returned(command.run(self._world))
        except Exception as error:
            return Failed(error, traceback.format_exc())

    def close(self) -> None:
        """Frees the world."""
        if self._world is not None:
            self._world.close()

    def _begin(self, job: Job, world: Simulation) -> Message:
        self._video = Video() if job.video else None
        self._episode = run_episode(
            world, job.seed, execute_steps=job.execute_steps, options=job.options, video=self._video
        )
        return Asked(next(self._episode))

    def _go_on(self, episode: Episode, answer: Answer) -> Message:
        try:
            return Asked(episode.send(answer))
        except StopIteration as end:
            video = None if self._video is None else _mp4(self._video)
            self._episode = self._video = None
            return Ended(end.value, video)


def _mp4(video: Video) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        video.write(path)
        return path.read_bytes()
