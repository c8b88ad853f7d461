"""Records of a deployment: the incident log of its device process, and an episode in a store."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.encoders.training.checkpoint import code_version
from stringline.policies.checkpoints.load import checkpoint_digest, is_address
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.recording.observation_bridge import FrameSource


def log_of_policy(log: LogPlan, checkpoint: str) -> LogPlan:
    """Returns a log whose header names the code and the checkpoint, unless that is an address."""
    about = {**log.about, "code": code_version()}
    if checkpoint and not is_address(checkpoint):
        with suppress(ValueError):  # A check reports a missing checkpoint.
            about["checkpoint"] = checkpoint_digest(checkpoint)
    return replace(log, about=about)


class Recording:
    """The recording of one episode."""

    def __init__(self, recorder: DeploymentRecorder, frames: FrameSource) -> None:
        self._recorder = recorder
        self._frames = frames
        self._by_hand = False
        self._committed = False

    def follow(self, state: DeviceState) -> None:
        """Passes new images to the recorder, which reads all else from the log's ring."""
        self._follow(state, by_hand=False)

    def follow_by_hand(self, state: DeviceState, _: Vector) -> None:
        """Does the same while a person leads the arms, which is marked as an intervention."""
        self._follow(state, by_hand=True)

    def _follow(self, state: DeviceState, *, by_hand: bool) -> None:
        if by_hand != self._by_hand:
            self._by_hand = by_hand
            self._recorder.mark(state.arms.time, by_hand=by_hand)
        self._recorder.look(state, self._frames)

    def commit(self, success: bool | None, extra: dict[str, object]) -> str:
        """Adds the episode to the store and describes the result; `success` is None if unknown."""
        if self._committed:
            return ""
        self._committed = True
        recorded = self._recorder.commit(success, extra)
        if recorded.problem:
            return f"No episode was recorded: {recorded.problem}."
        lost = f" {recorded.lost} records came too late for it." if recorded.lost else ""
        return f"Recorded as {recorded.name}, {recorded.steps} steps.{lost}"


@contextmanager
def recording(
    device: DeviceProcess,
    store: Path,
    attributes: EpisodeAttributes,
    embodiment: Embodiment,
    frames: FrameSource,
    *,
    frame_hz: float,
) -> Iterator[Recording]:
    """Records the next episode of a device process, also one that ends with an error or Ctrl-C."""
    with DeploymentRecorder(device, store, attributes, embodiment, frame_hz=frame_hz) as recorder:
        episode = Recording(recorder, frames)
        try:
            yield episode
        finally:
            episode.commit(None, {"ended": "by an error or an interruption"})
