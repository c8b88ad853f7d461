"""The owner of the process that records a deployment."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState, state_layout
from stringline.real_robot.incidents.incident_log import cycle_layout
from stringline.real_robot.incidents.incident_ring import Mark, Ring
from stringline.real_robot.ipc.child_process import ChildProcess
from stringline.real_robot.recording.deployment_episode import (
    COMMIT,
    DISCARD,
    MARK,
    EpisodeSetup,
    run_episode,
)
from stringline.real_robot.recording.frame_queue import FrameQueue, frames_memory
from stringline.real_robot.recording.observation_bridge import FrameSource

_ANSWER_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Recorded:
    """The result of a recording.

    Attributes:
        name: Name of the episode in the store; empty without an episode.
        problem: Reason for a missing episode.
    """

    name: str = ""
    steps: int = 0
    lost: int = 0
    problem: str = ""


class DeploymentRecorder:
    """Records the next episode of a device process into a store, in a separate process.

    A context manager that ends the process. Leaving the block without `commit` discards the steps.
    Only `commit` waits for the process.

    Args:
        device: Armed device process with an incident log, whose ring is the source.
        store: Folder of the store, which is created if it does not exist.
        attributes: Attributes of the episode, with the contract of the policy.
        unfiltered: Whether the action of a step is the target before the safety filter, as for
            teleoperation, or the command that the filter sent.

    Raises:
        ValueError: The device process has no log, or the folder holds other files than a store.
    """

    def __init__(
        self,
        device: DeviceProcess,
        store: Path,
        attributes: EpisodeAttributes,
        embodiment: Embodiment,
        *,
        frame_hz: float,
        unfiltered: bool = False,
    ) -> None:
        if device.incidents is None:
            raise ValueError(
                "Deployments are recorded from the incident log of the device process: "
                "log.folder=FOLDER."
            )
        states = state_layout(len(embodiment.joints), len(device.servos), len(device.arms))
        frames = frames_memory(attributes.contract)
        setup = EpisodeSetup(
            ring=device.incidents.memory,
            cycle=cycle_layout(states, len(embodiment.joints)),
            start=Ring(device.incidents.memory).marks[Mark.WRITTEN],
            session=device.latest().session + 1,
            frames=frames,
            store=EpisodeStore.create(store).path,
            attributes=attributes,
            embodiment=embodiment,
            unfiltered=unfiltered,
        )
        self._box = FrameQueue(frames, attributes.contract)
        self._seeing = bool(attributes.contract.cameras)
        self._interval_s = 1.0 / frame_hz
        self._looked_at = -1.0
        self._child = ChildProcess(
            run_episode,
            (setup,),
            Pipe(),
            name="stringline deployment recorder",
            end_timeout_s=_END_TIMEOUT_S,
            stop=lambda pipe: pipe.send_bytes(DISCARD),
        )

    def __enter__(self) -> Self:
        self._child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    @property
    def pid(self) -> int | None:
        """Process ID."""
        return self._child.pid

    def look(self, state: DeviceState, frames: FrameSource) -> None:
        """Passes images to the process when their period is over by the time of the state."""
        now = state.arms.time
        if self._seeing and not self._looked_at <= now < self._looked_at + self._interval_s - 1e-9:
            self._looked_at = now
            self._box.put(frames.frames())

    def mark(self, time: float, *, by_hand: bool) -> None:
        """Marks a time from which a person leads the arms, or the policy again."""
        self._send(MARK + json.dumps({"time": time, "by_hand": by_hand}).encode())

    def commit(self, success: bool | None, extra: Mapping[str, Any]) -> Recorded:
        """Waits until the episode is in the store; never raises. `success` is None if unknown."""
        self._send(COMMIT + json.dumps({"success": success, "extra": dict(extra)}).encode())
        try:
            if not self._child.channel.poll(_ANSWER_TIMEOUT_S):
                return Recorded(problem=f"the recorder did not answer for {_ANSWER_TIMEOUT_S} s")
            answer = json.loads(self._child.channel.recv_bytes())
        except (EOFError, OSError):
            return Recorded(problem="the recorder died")
        problem = answer.get("error", "" if answer.get("name") else "no step was complete")
        return Recorded(
            answer.get("name", ""), answer.get("steps", 0), answer.get("lost", 0), problem
        )

    def _send(self, request: bytes) -> None:
        with contextlib.suppress(OSError):
            self._child.channel.send_bytes(request)
