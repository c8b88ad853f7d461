"""What a deployment keeps: the incident log of its device process, and an episode in a store."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.encoders.training.checkpoint import code_version
from stringline.policies.checkpoints.load import checkpoint_digest, is_address
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.sim.tasks.task_catalogue import make_task


def log_plan(settings: Mapping[str, Any]) -> LogPlan | None:
    """Returns what of a deployment is logged, None if nothing is.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved.

    Raises:
        ValueError: The spans of time keep nothing.
    """
    plan = dict(settings.get("log") or {})
    folder = plan.pop("folder", None)
    if folder is None:
        return None
    about = {"configuration": settings, "code": code_version()}
    if settings.get("checkpoint") is not None and not is_address(settings["checkpoint"]):
        with suppress(ValueError):  # Whether there is one is checked, and said, elsewhere.
            about["checkpoint"] = checkpoint_digest(settings["checkpoint"])
    return LogPlan(Path(folder), about, **plan)


def asked_for(settings: Mapping[str, Any]) -> str:
    """Returns what a policy is told to do, and what an episode says was asked for.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved; untold it is what people say of the
            task.

    Raises:
        ValueError: There is no such task.
    """
    told = settings.get("told")
    return make_task(settings["task"]["name"]).instruction if told is None else str(told)


def what_was_kept(device: DeviceProcess) -> list[str]:
    """Returns what there is to say about the incident log of a device process that was closed."""
    incidents = device.incidents
    if incidents is None or not (incidents.files or incidents.lost or incidents.failures):
        return []
    said = [
        (
            f"Incident logs: {incidents.files}, in {incidents.folder}. Read them with "
            f"stringline-incident file=..."
        )
    ]
    if incidents.lost or incidents.failures:
        said.append(
            f"{incidents.lost} records of them are lost; the disk refused {incidents.failures} "
            f"writes."
        )
    return said


class Recording:
    """The recording of one episode, beside whoever drives the arms.

    Args:
        recorder: Started.
        frames: The cameras.
    """

    def __init__(self, recorder: DeploymentRecorder, frames: FrameSource) -> None:
        self._recorder = recorder
        self._frames = frames
        self._by_hand = False
        self._over = False

    def follow(self, states: Sequence[DeviceState], every: int = 1) -> None:
        """Takes images along, if it is time for some; the rest comes from the device process itself.

        Args:
            states: Oldest first; a policy drives the arms in them.
            every: Of no account here: the contract says how many steps a second has.
        """
        if states:
            self._see(states[-1], by_hand=False)

    def add(self, state: DeviceState, action: Vector, *, by_hand: bool = False) -> None:
        """As `follow`, for a state in which a person may lead the arms, which is an intervention."""
        self._see(state, by_hand=by_hand)

    def _see(self, state: DeviceState, *, by_hand: bool) -> None:
        if by_hand != self._by_hand:
            self._by_hand = by_hand
            self._recorder.mark(state.arms.time, by_hand=by_hand)
        self._recorder.look(state, self._frames)

    def commit(self, success: bool | None, extra: Mapping[str, Any]) -> str:
        """Makes the episode part of the store, and returns what became of it, in words.

        Args:
            success: Whether the task was done; None when nobody knows.
            extra: Plain JSON to keep with the episode.
        """
        if self._over:
            return ""
        self._over = True
        recorded = self._recorder.commit(success, extra)
        if recorded.problem:
            return f"Nothing was recorded: {recorded.problem}."
        lost = f" {recorded.lost} records came too late for it." if recorded.lost else ""
        return f"Recorded as {recorded.name}, {recorded.steps} steps.{lost}"


@contextmanager
def recording(
    settings: Mapping[str, Any],
    contract: Contract,
    device: DeviceProcess,
    frames: FrameSource,
    embodiment: Embodiment,
) -> Iterator[Recording | None]:
    """Records the next episode of a device process as the settings say, also one that ends with an error or Ctrl-C.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved.
        contract: Of the policy.
        device: Armed.
        frames: Its cameras.
        embodiment: The body.

    Yields:
        The recording, None if the settings ask for none.
    """
    if settings.get("record") is None or device.incidents is None:
        yield None
        return
    about = {
        "checkpoint": str(settings["checkpoint"]),
        "mode": str(settings.get("mode", "run")),
        "code": code_version(),
    }
    about["robot"] = str(settings["robot"]["name"])
    attributes = EpisodeAttributes(
        contract,
        settings["task"]["name"],
        int(settings["seed"]),
        source="deployment",
        instruction=asked_for(settings),
        extra=about,
    )
    frame_hz = float(settings["task"]["frame_hz"])
    with DeploymentRecorder(
        device, Path(settings["record"]), attributes, embodiment, frame_hz=frame_hz
    ) as recorder:
        kept = Recording(recorder, frames)
        try:
            yield kept
        finally:
            kept.commit(None, {"ended": "not in good order"})
