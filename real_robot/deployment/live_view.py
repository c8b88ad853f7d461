"""Live view of arms, images and safety filter in rerun's viewer, from a separate process.

    world/arms, world/grippers/<arm>  measured positions, base frame
    images/<camera>                   newest image
    measured/<joint>, sent/<joint>    plots
    filter/mode, filter/<reason>      mode, and cycles in which each reason has acted so far
    loop/command_age_ms, loop/missed, loop/cycle_99_percent_ms

Ten times a second the process reads the ring of the device process and the queue of images, which
never wait for it. If a slow viewer makes it hold more than a gigabyte, it ends with a warning.
"""

import contextlib
import importlib.util
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.viewing.viewer_process import open_viewer
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState, state_layout
from stringline.real_robot.device.process_monitor import TimingMonitor, resident
from stringline.real_robot.incidents.incident_log import cycle_layout
from stringline.real_robot.ipc.child_process import ChildProcess, leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory
from stringline.real_robot.recording.frame_queue import FrameQueue, frames_memory
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.safety.reasons import MESSAGES, Mode, Reason

log = logging.getLogger(__name__)

VIEWER = "spawn"
FILE = ".rrd"
ADDRESS = "rerun+http://"
_READ_EVERY_S = 0.1
_MOST_BYTES = 1 << 30
_END_TIMEOUT_S = 10.0
_AXES_M = 0.06
_JPEG_QUALITY = 85


@dataclass(frozen=True, eq=False)
class ViewSetup:
    """Arguments of the process, see `LiveView`; `cycle` is the layout of a cycle's record."""

    ring: Memory
    cycle: np.dtype[np.void]
    period_s: float
    frames: Memory
    contract: Contract
    embodiment: Embodiment
    where: str


class LiveView:
    """Owner of the process of a live view; a context manager that ends it.

    Args:
        device: Device process with an incident log, whose ring is read.
        where: `spawn` opens a viewer, FILE.rrd writes a recording, rerun+http://HOST:PORT/proxy
            sends to a running viewer.

    Raises:
        ValueError: The device process has no log, rerun is not installed, or `where` is invalid.
    """

    def __init__(
        self,
        device: DeviceProcess,
        contract: Contract,
        embodiment: Embodiment,
        where: str,
        *,
        period_s: float,
        frame_hz: float,
    ) -> None:
        if device.incidents is None:
            raise ValueError(
                "The live view reads the log of the device process: log.folder=FOLDER."
            )
        check_view(where)
        joints = len(embodiment.joints)
        frames = frames_memory(contract)
        layout = cycle_layout(state_layout(joints, len(device.servos), len(device.arms)), joints)
        setup = ViewSetup(
            device.incidents.memory, layout, period_s, frames, contract, embodiment, where
        )
        self._box = FrameQueue(frames, contract)
        self._seeing = bool(contract.cameras)
        self._interval_s = 1.0 / frame_hz
        self._looked_at = -np.inf
        self._child = ChildProcess(
            run_view,
            (setup,),
            Pipe(),
            name="stringline live view",
            end_timeout_s=_END_TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        self._child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def look(self, state: DeviceState, frames: FrameSource) -> None:
        """Passes images to the process when their period is over; it reads states from the ring."""
        now = state.arms.time
        if self._seeing and not self._looked_at <= now < self._looked_at + self._interval_s:
            self._looked_at = now
            self._box.put(frames.frames())


def check_view(where: str) -> None:
    """Checks the target of a live view, and that rerun is installed.

    Raises:
        ValueError: Names the valid targets, or the command that installs rerun.
    """
    if where != VIEWER and not where.endswith(FILE) and not where.startswith(ADDRESS):
        raise ValueError(
            f"view is {where!r}; allowed: null, spawn, FILE.rrd, or rerun+http://HOST:PORT/proxy."
        )
    if importlib.util.find_spec("rerun") is None:
        raise ValueError('The live view needs rerun-sdk. Run: pip install "stringline[view]"')


@contextlib.contextmanager
def viewing(
    where: str | None,
    device: DeviceProcess,
    contract: Contract,
    embodiment: Embodiment,
    frames: FrameSource,
    *,
    period_s: float,
    frame_hz: float,
) -> Iterator[Callable[[DeviceState], None]]:
    """Shows a deployment in a live view, unless `where` is None; see `LiveView`.

    Yields:
        A function that takes every state shown elsewhere.
    """
    if where is None:
        yield lambda _: None
        return
    with LiveView(
        device, contract, embodiment, where, period_s=period_s, frame_hz=frame_hz
    ) as view:
        yield lambda state: view.look(state, frames)


def run_view(setup: ViewSetup, connection: Connection) -> None:
    """Runs in the spawned process until the owner ends it or dies."""
    leave_to_owner()
    rerun = optional_library("rerun", package="rerun-sdk", extra="view")
    stream = rerun.RecordingStream("stringline live")
    if setup.where == VIEWER:
        stream.connect_grpc(open_viewer(memory_limit="1GB").address)
    elif setup.where.endswith(FILE):
        Path(setup.where).parent.mkdir(parents=True, exist_ok=True)
        stream.save(setup.where)
    else:
        stream.connect_grpc(setup.where)
    view = Drawing(setup, rerun, stream)
    while not connection.poll(_READ_EVERY_S):  # A message, or the end of the pipe, ends the view.
        view.look()
        if (held := resident(os.getpid())) is not None and held.private > _MOST_BYTES:
            log.warning(
                "The live view ends: its viewer is too slow; unread data take %d bytes.",
                held.private,
            )
            return
    view.look()
    with contextlib.suppress(Exception):  # The user may have closed the viewer.
        stream.flush(timeout_sec=_END_TIMEOUT_S / 2)
    stream.disconnect()


class Drawing:
    """Draws new states and images."""

    def __init__(self, setup: ViewSetup, rerun: Any, stream: Any) -> None:
        self._rerun = rerun
        self._stream = stream
        self._embodiment = setup.embodiment
        self._watch = TimingMonitor(setup.ring, setup.cycle, setup.period_s)
        self._box = FrameQueue(setup.frames, setup.contract)
        self._cameras = [camera.name for camera in setup.contract.cameras]
        self._names = [joint.name for joint in setup.embodiment.joints]
        self._mode: Mode | None = None
        self._began = 0.0
        stream.log("world", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        for arm in setup.embodiment.arms:
            stream.log(f"world/grippers/{arm}", rerun.TransformAxes3D(_AXES_M), static=True)

    def look(self) -> None:
        """Draws the newest state and the newest images, if they are new."""
        before = self._watch.cycles
        self._watch.update()
        if (record := self._watch.newest) is None or self._watch.cycles == before:
            return
        state = DeviceState.of(record["state"])
        self._began = self._began or state.arms.time
        self._stream.set_time("time", duration=state.arms.time - self._began)
        self._draw_arms(state)
        self._plot(
            {
                **{
                    f"measured/{name}": value
                    for name, value in zip(self._names, state.arms.position, strict=True)
                },
                **{
                    f"sent/{name}": value
                    for name, value in zip(self._names, state.command, strict=True)
                },
                **{
                    f"filter/{str(reason.name).lower()}": count
                    for reason, count in self._watch.acted.items()
                },
                "loop/command_age_ms": 1e3 * self._watch.newest_age_s,
                "loop/missed": self._watch.late,
                "loop/cycle_99_percent_ms": 1e3 * self._watch.cycle.quantile(0.99),
            }
        )
        if state.mode is not self._mode:
            self._mode = state.mode
            why = [MESSAGES[reason] for reason in Reason if reason & state.reasons]
            self._stream.log(
                "filter/mode",
                self._rerun.TextLog(": ".join([state.mode.name, *["; ".join(why)] * bool(why)])),
            )
        for look in self._box.fresh()[-1:]:
            for name in self._cameras:
                self._stream.log(
                    f"images/{name}", self._rerun.Image(look[f"rgb/{name}"]).compress(_JPEG_QUALITY)
                )

    def _draw_arms(self, state: DeviceState) -> None:
        capsules = self._embodiment.capsules(state.arms.position)
        ends = np.array([[capsule.start, capsule.end] for capsule in capsules])
        radii = [capsule.radius for capsule in capsules]
        self._stream.log("world/arms", self._rerun.LineStrips3D(ends, radii=radii))
        for arm, T in self._embodiment.forward_kinematics(state.arms.position).items():
            self._stream.log(
                f"world/grippers/{arm}",
                self._rerun.Transform3D(translation=T[:3, 3], mat3x3=T[:3, :3]),
            )

    def _plot(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if np.isfinite(value):
                self._stream.log(name, self._rerun.Scalars(float(value)))
