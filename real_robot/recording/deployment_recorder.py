"""The owner's handle on the recording of a deployment."""

import contextlib
import json
import multiprocessing
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState, state_layout
from stringline.real_robot.incidents.incident_log import cycle_layout
from stringline.real_robot.incidents.incident_ring import Mark, Ring
from stringline.real_robot.recording.deployment_episode import (
    COMMIT,
    DISCARD,
    MARK,
    EpisodeSetup,
    run_episode,
)
from stringline.real_robot.recording.frame_queue import FrameBox, frames_memory
from stringline.real_robot.recording.observation_bridge import FrameSource

_ANSWER_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Recorded:
    """What became of a recording.

    Attributes:
        name: Of the episode in the store; empty if there is none.
        steps: It has.
        lost: Records of the device process that were overwritten before they were read.
        problem: Why there is no episode, in words.
    """

    name: str = ""
    steps: int = 0
    lost: int = 0
    problem: str = ""


class DeploymentRecorder:
    """Records the next episode of a device process into a store, from a process of its own; a context manager that ends it.

    Leaving the block without `commit` discards what was recorded. Nothing but `commit` makes
    whoever drives the arms wait.

    Args:
        device: Armed, with an incident log, whose ring is the source.
        store: Folder of the store; it is made where there is none.
        attributes: Of the episode; its contract is the one of the policy.
        embodiment: The body.
        frame_hz: How often images are looked at.
        asked: Whether the action of a step is what was asked for, as when a person leads, rather
            than what was sent.

    Raises:
        ValueError: The device process keeps no log, or the folder holds something else than a
            store.
    """

    def __init__(
        self,
        device: DeviceProcess,
        store: Path,
        attributes: EpisodeAttributes,
        embodiment: Embodiment,
        *,
        frame_hz: float,
        asked: bool = False,
    ) -> None:
        if device.incidents is None:
            raise ValueError(
                "A deployment is recorded out of the incident log of its device process, which "
                "has none."
            )
        context = multiprocessing.get_context("spawn")
        states = state_layout(len(embodiment.joints), len(device.servos), len(device.arms))
        frames = frames_memory(context, attributes.contract)
        setup = EpisodeSetup(
            ring=device.incidents.memory,
            cycle=cycle_layout(states, len(embodiment.joints)),
            start=Ring(device.incidents.memory).marks[Mark.WRITTEN],
            session=device.latest().session + 1,
            frames=frames,
            store=EpisodeStore.create(store).path,
            attributes=attributes,
            embodiment=embodiment,
            asked=asked,
        )
        self._box = FrameBox(frames, attributes.contract)
        self._seeing = bool(attributes.contract.cameras)
        self._interval_s = 1.0 / frame_hz
        self._looked_at = -1.0
        self._connection, self._far_end = context.Pipe()
        weakref.finalize(
            self, self._connection.close
        )  # At the owner's exit the process learns that it is gone.
        self._process = context.Process(
            target=run_episode,
            args=(setup, self._far_end),
            name="stringline deployment recorder",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._process.start()
        self._far_end.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._connection.send_bytes(DISCARD)
        self._process.join(_END_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        return self._process.pid

    def look(self, state: DeviceState, frames: FrameSource) -> None:
        """Takes images along if it is time for some.

        Args:
            state: The newest, which says what time it is.
            frames: The cameras.
        """
        now = state.arms.time
        if self._seeing and not self._looked_at <= now < self._looked_at + self._interval_s - 1e-9:
            self._looked_at = now
            self._box.put(frames.frames())

    def mark(self, time: float, *, by_hand: bool) -> None:
        """Notes that from that time on a person leads the arms, or that the policy does again."""
        self._say(MARK + json.dumps({"time": time, "by_hand": by_hand}).encode())

    def commit(self, success: bool | None, extra: Mapping[str, Any]) -> Recorded:
        """Waits until the episode is in the store; never raises.

        Args:
            success: Whether the task was done; None when nobody knows.
            extra: Plain JSON to keep with it.
        """
        self._say(COMMIT + json.dumps({"success": success, "extra": dict(extra)}).encode())
        try:
            if not self._connection.poll(_ANSWER_TIMEOUT_S):
                return Recorded(problem=f"the recorder has not answered for {_ANSWER_TIMEOUT_S} s")
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            return Recorded(problem="the recorder died")
        problem = answer.get("error", "" if answer.get("name") else "not one step was complete")
        return Recorded(
            answer.get("name", ""), answer.get("steps", 0), answer.get("lost", 0), problem
        )

    def _say(self, request: bytes) -> None:
        with contextlib.suppress(OSError):
            self._connection.send_bytes(request)
