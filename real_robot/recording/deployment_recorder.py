"""The process that writes a deployment to an episode store, and its owner.

Its sources are the ring of the device process and a queue of images; no process waits for it. If
its owner dies, the recorded steps still become an episode. If this process dies, it leaves a folder
that readers of the store ignore.
"""

import contextlib
import json
import time
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.store.episode import INTERVENTIONS, EpisodeAttributes
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState, state_layout
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.incidents.incident_log import cycle_layout
from stringline.real_robot.incidents.incident_records import Entry, Kind, Mark, Ring, scan
from stringline.real_robot.ipc.child_process import ChildProcess, leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory
from stringline.real_robot.recording.frame_queue import FrameQueue, frames_memory
from stringline.real_robot.recording.observation_bridge import FrameSource, ObservationAssembler

MARK = b"mark"
COMMIT = b"commit"
DISCARD = b"discard"
_POLL_S = 0.02
_PATIENCE_NS = 500_000_000  # Longest wait of a cycle for images of its time.
_HISTORY = 64


@dataclass(frozen=True, eq=False)
class EpisodeSetup:
    """Arguments of the process.

    Attributes:
        start: Position in the ring of the first record.
        session: First session of the device process; later ones, as after a hold, follow.
        unfiltered: Whether the action of a step is the target before the safety filter, and steps
            without a target are left out; else it is the command that the filter sent.
    """

    ring: Memory
    cycle: np.dtype[np.void]
    start: int
    session: int
    frames: Memory
    store: Path
    attributes: EpisodeAttributes
    embodiment: Embodiment
    unfiltered: bool = False


def run_episode(setup: EpisodeSetup, connection: Connection) -> None:
    """Runs in the spawned process until the owner ends the episode or dies; answers with JSON."""
    leave_to_owner()
    try:
        with EpisodeStore.open(setup.store).writer(setup.attributes) as writer:
            answer = _record(DeploymentEpisode(setup, writer), connection)
    except (ValueError, OSError) as error:
        answer = {"error": str(error)}
    try:
        connection.send_bytes(json.dumps(answer).encode())
    except OSError:
        return


def _record(episode: "DeploymentEpisode", connection: Connection) -> dict[str, Any]:
    """Records until a request to stop; returns the answer."""
    while True:
        try:
            request = connection.recv_bytes() if connection.poll(_POLL_S) else b""
        except (EOFError, OSError):
            return episode.commit(None, {"ended": "the process that drove the arms died"})
        if request.startswith(MARK):
            episode.mark(**json.loads(request[len(MARK) :]))
        elif request.startswith(COMMIT):
            return episode.commit(**json.loads(request[len(COMMIT) :]))
        elif request == DISCARD:
            return {"name": ""}
        episode.take()


class DeploymentEpisode:
    """Builds the steps of an episode from cycles and images."""

    def __init__(self, setup: EpisodeSetup, writer: EpisodeWriter) -> None:
        self._setup = setup
        self._writer = writer
        self._contract = setup.attributes.contract
        self._ring = Ring(setup.ring)
        self._place = setup.start
        self._number = 0
        self._box = FrameQueue(setup.frames, self._contract)
        self._assembler = ObservationAssembler(self._contract, setup.embodiment)
        self._cycles: deque[tuple[int, DeviceState, Vector]] = deque()
        self._captures: deque[dict[str, Array]] = deque()
        self._capture: dict[str, Array] | None = None
        self._history: deque[ArmState] = deque(maxlen=_HISTORY)
        self._due = -np.inf
        self._hands: list[tuple[float, bool]] = []
        self._times = array("d")  # A list of floats would take four times the memory.
        self.lost = 0

    @property
    def steps(self) -> int:
        """Number of steps written so far."""
        return len(self._times)

    def mark(self, time: float, *, by_hand: bool) -> None:
        """Marks a time from which a person leads the arms, or the policy again."""
        self._hands.append((time, by_hand))

    def take(self, *, everything: bool = False) -> None:
        """Writes the steps that are complete, or all, although images may still arrive."""
        data, self._place = self._ring.read(self._place)
        for entry in scan(data):
            if isinstance(entry, Entry):
                self._sort(entry)
        if self._contract.cameras:
            self._captures += self._box.fresh()
        while self._cycles and (everything or self._complete(*self._cycles[0][:2])):
            self._step(*self._cycles.popleft()[1:])

    def _sort(self, entry: Entry) -> None:
        if self._number:
            self.lost += max(0, entry.number - self._number - 1)
        self._number = entry.number
        if entry.kind == Kind.CYCLE and len(entry.payload) == self._setup.cycle.itemsize:
            record = np.frombuffer(entry.payload, self._setup.cycle).reshape(())
            if int(record["state"]["session"]) >= self._setup.session:
                state = DeviceState.of(record["state"])
                action = record["target"].copy() if self._setup.unfiltered else state.command
                self._cycles.append((entry.ns, state, action))

    def _complete(self, ns: int, state: DeviceState) -> bool:
        """Returns whether no image of that time or before can arrive any more."""
        newer = self._captures and self._box.newest_time(self._captures[-1]) > state.arms.time
        return not self._contract.cameras or bool(newer) or time.monotonic_ns() - ns > _PATIENCE_NS

    def _step(self, state: DeviceState, action: Vector) -> None:
        now = state.arms.time
        period = 1.0 / self._contract.control_hz
        history = list(self._history)
        self._history.append(state.arms)
        while self._captures and self._box.newest_time(self._captures[0]) <= now:
            self._capture = self._captures.popleft()
        if (
            now < self._due - period / 4
            or (self._contract.cameras and self._capture is None)
            or np.isnan(action).any()
        ):
            return
        if self._times and now <= self._times[-1]:
            return  # The last step was late, and no new state has come since.
        self._due = (self._due if self._due > now - period else now) + period
        self._writer.step(
            self._assembler.build(state.arms, history, self._capture or {}),
            action.astype(np.float32),
        )
        self._times.append(now)

    def commit(self, success: bool | None, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the remaining steps and adds the episode to the store, with plain JSON.

        `success` is None if unknown. Returns the name of the episode, the number of steps and the
        number of lost records; an empty name without a step.
        """
        self.take(everything=True)
        if not self.steps:
            return {"name": "", "steps": 0, "lost": self.lost}
        about = {INTERVENTIONS: self.interventions(), "lost_records": self.lost, **extra}
        return {"name": self._writer.commit(success, about), "steps": self.steps, "lost": self.lost}

    def interventions(self) -> list[list[int]]:
        """Returns the first step of each intervention and the step after its last."""
        found: list[list[int]] = []
        ends = [*(start for start, _ in self._hands[1:]), np.inf]
        for (start, by_hand), end in zip(self._hands, ends, strict=False):
            first, last = (int(np.searchsorted(self._times, moment)) for moment in (start, end))
            if by_hand and last > first:
                found.append([first, last])
        return found


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
