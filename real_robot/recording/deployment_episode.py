"""The process that puts a deployment into the episode store, out of the ring of the device process and a box of images.

It waits for nobody and nobody waits for it. If whoever drove the arms dies, what was recorded
becomes an episode all the same; if this process dies, an open folder is left that readers of the
store do not see.
"""

import json
import time
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.incidents.incident_format import Entry, Kind, scan
from stringline.real_robot.incidents.incident_ring import Ring
from stringline.real_robot.ipc.group_signals import leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory
from stringline.real_robot.recording.frame_queue import FrameBox
from stringline.real_robot.recording.observation_bridge import ObservationAssembler

MARK = b"mark"
COMMIT = b"commit"
DISCARD = b"discard"
_LOOK_S = 0.02
_PATIENCE_NS = 500_000_000  # A cycle waits so long for the images of its time.
_HISTORY = 64


@dataclass(frozen=True, eq=False)
class EpisodeSetup:
    """What the spawned process is given.

    Attributes:
        ring: Memory of the device process's ring.
        cycle: Layout of its cycles.
        start: Place in the ring where to begin.
        session: Of the first cycles that count; those of later ones follow, as after a hold.
        frames: Memory of the box of images.
        store: Folder of the store, which exists.
        attributes: Of the episode.
        embodiment: The body.
        asked: Whether the action of a step is what was asked for, and steps in which nothing was
            are left out; else it is what the safety filter sent.
    """

    ring: Memory
    cycle: np.dtype[np.void]
    start: int
    session: int
    frames: Memory
    store: Path
    attributes: EpisodeAttributes
    embodiment: Embodiment
    asked: bool = False


def run_episode(setup: EpisodeSetup, connection: Connection) -> None:
    """Runs in the spawned process until the owner says how the episode ended, or is gone; answers with JSON."""
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
    """Records until it is told to stop; returns the name of the episode and what was lost."""
    while True:
        try:
            request = connection.recv_bytes() if connection.poll(_LOOK_S) else b""
        except (EOFError, OSError):
            return episode.commit(None, {"ended": "whoever drove the arms is gone"})
        if request.startswith(MARK):
            episode.mark(**json.loads(request[len(MARK) :]))
        elif request.startswith(COMMIT):
            return episode.commit(**json.loads(request[len(COMMIT) :]))
        elif request == DISCARD:
            return {"name": ""}
        episode.take()


class DeploymentEpisode:
    """Steps out of cycles and images.

    Args:
        setup: What is recorded.
        writer: Where it goes.

    Attributes:
        steps: Written so far.
        lost: Cycles that were overwritten before this process came to read them.
    """

    def __init__(self, setup: EpisodeSetup, writer: EpisodeWriter) -> None:
        self._setup = setup
        self._writer = writer
        self._contract = setup.attributes.contract
        self._ring = Ring(setup.ring)
        self._place = setup.start
        self._number = 0
        self._box = FrameBox(setup.frames, self._contract)
        self._assembler = ObservationAssembler(self._contract, setup.embodiment)
        self._cycles: deque[tuple[int, DeviceState, Vector]] = deque()
        self._looks: deque[dict[str, Array]] = deque()
        self._look: dict[str, Array] | None = None
        self._history: deque[ArmState] = deque(maxlen=_HISTORY)
        self._due = -np.inf
        self._hands: list[tuple[float, bool]] = []
        self._times = array(
            "d"
        )  # Lists of floats take four times as much, for as long as an episode lasts.
        self.lost = 0

    @property
    def steps(self) -> int:
        """Written so far."""
        return len(self._times)

    def mark(self, time: float, *, by_hand: bool) -> None:
        """Notes that from that time on a person leads the arms, or that the policy does again."""
        self._hands.append((time, by_hand))

    def take(self, *, everything: bool = False) -> None:
        """Writes the steps that are complete.

        Args:
            everything: Also those that images may still come for.

        Raises:
            ValueError: Something does not fit the contract.
            NoSpaceError: The disk is full.
        """
        data, self._place = self._ring.read(self._place)
        for entry in scan(data):
            if isinstance(entry, Entry):
                self._sort(entry)
        if self._contract.cameras:
            self._looks += self._box.fresh()
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
                self._cycles.append(
                    (
                        entry.ns,
                        state,
                        record["target"].copy() if self._setup.asked else state.command,
                    )
                )

    def _complete(self, ns: int, state: DeviceState) -> bool:
        """Says whether no image of that time or before can come any more."""
        newer = self._looks and self._box.newest_time(self._looks[-1]) > state.arms.time
        return not self._contract.cameras or bool(newer) or time.monotonic_ns() - ns > _PATIENCE_NS

    def _step(self, state: DeviceState, action: Vector) -> None:
        now = state.arms.time
        period = 1.0 / self._contract.control_hz
        history = list(self._history)
        self._history.append(state.arms)
        while self._looks and self._box.newest_time(self._looks[0]) <= now:
            self._look = self._looks.popleft()
        if (
            now < self._due - period / 4
            or (self._contract.cameras and self._look is None)
            or np.isnan(action).any()
        ):
            return
        if self._times and now <= self._times[-1]:
            return  # Nothing was heard since the last step, which was late.
        self._due = (self._due if self._due > now - period else now) + period
        self._writer.step(
            self._assembler.build(state.arms, history, self._look or {}), action.astype(np.float32)
        )
        self._times.append(now)

    def commit(self, success: bool | None, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Writes what is left and makes the episode part of the store.

        Args:
            success: Whether the task was done; None when nobody knows.
            extra: Plain JSON to keep with it.

        Returns:
            Its name, its steps, and the records that were lost; without a name if there was not one
            step.

        Raises:
            ValueError: It does not fit its contract.
            NoSpaceError: The disk is full.
        """
        self.take(everything=True)
        if not self.steps:
            return {"name": "", "steps": 0, "lost": self.lost}
        about = {"interventions": self.interventions(), "lost_records": self.lost, **extra}
        return {"name": self._writer.commit(success, about), "steps": self.steps, "lost": self.lost}

    def interventions(self) -> list[list[int]]:
        """Returns for each time that a person led the first step and the one after the last."""
        found: list[list[int]] = []
        ends = [*(start for start, _ in self._hands[1:]), np.inf]
        for (start, by_hand), end in zip(self._hands, ends, strict=False):
            first, last = (int(np.searchsorted(self._times, moment)) for moment in (start, end))
            if by_hand and last > first:
                found.append([first, last])
        return found
