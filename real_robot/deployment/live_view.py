"""Arms, images and what the safety filter does in rerun's viewer, live, from a process of its own that nobody waits for.

    world/arms, world/grippers/<arm>           where the arms are measured to be, base frame
    images/<camera>                          the newest image
    measured/<joint>, sent/<joint>             plots
    filter/mode, filter/<reason>               what the filter does, and in how many cycles each reason acted so far
    loop/command_age_ms, loop/missed, loop/cycle_99_percent_ms

It reads the ring of the device process and a box of images, ten times a second. What the viewer
does not take in time is lost to the viewer. If the process comes to hold more than a gigabyte,
since a viewer is too slow, it ends, and says so.
"""

import contextlib
import importlib.util
import logging
import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.formats.libraries import optional_library
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState, state_layout
from stringline.real_robot.device.process_memory import resident
from stringline.real_robot.device.timing_monitor import LoopWatch
from stringline.real_robot.incidents.incident_log import cycle_layout
from stringline.real_robot.ipc.group_signals import leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory
from stringline.real_robot.recording.frame_queue import FrameBox, frames_memory
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.safety.reasons import IN_WORDS, Mode, Reason

log = logging.getLogger(__name__)

SPAWN = "spawn"
FILE = ".rrd"
ADDRESS = "rerun+http://"
_LOOK_S = 0.1
_MOST_BYTES = 1 << 30
_END_TIMEOUT_S = 10.0
_AXES_M = 0.06
_JPEG_QUALITY = 85


@dataclass(frozen=True, eq=False)
class ViewSetup:
    """What the spawned process is given.

    Attributes:
        ring: Memory of the device process's ring.
        cycle: Layout of its cycles.
        period_s: Of a cycle.
        frames: Memory of the box of images.
        contract: Whose cameras are shown.
        embodiment: The body.
        where: `spawn`, a file, or the address of a viewer.
    """

    ring: Memory
    cycle: np.dtype[np.void]
    period_s: float
    frames: Memory
    contract: Contract
    embodiment: Embodiment
    where: str


class LiveView:
    """The owner's handle; a context manager that ends the process.

    Args:
        device: With an incident log, whose ring is the source.
        contract: Whose cameras are shown.
        embodiment: The body.
        where: `spawn` opens a viewer, FILE.rrd writes a recording, rerun+http://HOST:PORT/proxy
            sends to a viewer that runs.
        period_s: Of a cycle.
        frame_hz: How often images are looked at.

    Raises:
        ValueError: There is no log, no rerun, or no such place.
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
                "The live view reads what the device process notes: log.folder=FOLDER."
            )
        check_place(where)
        context = multiprocessing.get_context("spawn")
        joints = len(embodiment.joints)
        frames = frames_memory(context, contract)
        layout = cycle_layout(state_layout(joints, len(device.servos), len(device.arms)), joints)
        setup = ViewSetup(
            device.incidents.memory, layout, period_s, frames, contract, embodiment, where
        )
        self._box = FrameBox(frames, contract)
        self._seeing = bool(contract.cameras)
        self._interval_s = 1.0 / frame_hz
        self._looked_at = -np.inf
        self._connection, self._far_end = context.Pipe()
        weakref.finalize(
            self, self._connection.close
        )  # At the owner's exit the process learns that it is gone.
        self._process = context.Process(
            target=run_view, args=(setup, self._far_end), name="stringline live view", daemon=True
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
        self._connection.close()
        self._process.join(_END_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def look(self, state: DeviceState, frames: FrameSource) -> None:
        """Takes images along if it is time for some; the rest comes from the device process itself."""
        now = state.arms.time
        if self._seeing and not self._looked_at <= now < self._looked_at + self._interval_s:
            self._looked_at = now
            self._box.put(frames.frames())


def check_place(where: str) -> None:
    """Refuses a place that is none, and a viewer that is not installed.

    Raises:
        ValueError: Says what is allowed, or how to get it.
    """
    if where != SPAWN and not where.endswith(FILE) and not where.startswith(ADDRESS):
        raise ValueError(
            f"view is {where!r}; allowed: null, spawn, FILE.rrd, or rerun+http://HOST:PORT/proxy."
        )
    if importlib.util.find_spec("rerun") is None:
        raise ValueError(
            'This needs rerun-sdk, which is not installed. Run: pip install "stringline[view]"'
        )


@contextlib.contextmanager
def viewing(
    settings: Mapping[str, Any],
    device: DeviceProcess,
    contract: Contract,
    embodiment: Embodiment,
    frames: FrameSource,
) -> Iterator[Callable[[DeviceState], None]]:
    """Shows a deployment live, if its settings ask for it.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved.
        device: With an incident log.
        contract: Whose cameras are shown.
        embodiment: The body.
        frames: Its cameras.

    Yields:
        What gets every state that is shown elsewhere.

    Raises:
        ValueError: There is no log, no rerun, or no such place.
    """
    if settings.get("view") is None:
        yield lambda _: None
        return
    period_s = 1.0 / float(settings["robot"]["device_hz"])
    frame_hz = float(settings["task"]["frame_hz"])
    with LiveView(
        device, contract, embodiment, str(settings["view"]), period_s=period_s, frame_hz=frame_hz
    ) as view:
        yield lambda state: view.look(state, frames)


def run_view(setup: ViewSetup, connection: Connection) -> None:
    """Runs in the spawned process until the owner ends it, or is gone."""
    leave_to_owner()
    rerun = optional_library("rerun", package="rerun-sdk", extra="view")
    stream = rerun.RecordingStream("stringline live")
    if setup.where == SPAWN:
        stream.spawn(memory_limit="1GB")
    elif setup.where.endswith(FILE):
        Path(setup.where).parent.mkdir(parents=True, exist_ok=True)
        stream.save(setup.where)
    else:
        stream.connect_grpc(setup.where)
    view = Drawing(setup, rerun, stream)
    while not connection.poll(
        _LOOK_S
    ):  # Whatever comes, the end of the pipe most of all, means the end.
        view.look()
        if (held := resident(os.getpid())) is not None and held.private > _MOST_BYTES:
            log.warning(
                "The live view ends: its viewer is too slow, and what waits for it takes %d bytes.",
                held.private,
            )
            return
    view.look()
    with contextlib.suppress(Exception):  # A viewer that is gone by now is no mistake.
        stream.flush(timeout_sec=_END_TIMEOUT_S / 2)
    stream.disconnect()


class Drawing:
    """Draws what is new.

    Args:
        setup: Where it comes from.
        rerun: The library.
        stream: Where it goes.
    """

    def __init__(self, setup: ViewSetup, rerun: Any, stream: Any) -> None:
        self._rerun = rerun
        self._stream = stream
        self._embodiment = setup.embodiment
        self._watch = LoopWatch(setup.ring, setup.cycle, setup.period_s)
        self._box = FrameBox(setup.frames, setup.contract)
        self._cameras = [camera.name for camera in setup.contract.cameras]
        self._names = [joint.name for joint in setup.embodiment.joints]
        self._mode: Mode | None = None
        self._began = 0.0
        stream.log("world", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        for arm in setup.embodiment.arms:
            stream.log(f"world/grippers/{arm}", rerun.TransformAxes3D(_AXES_M), static=True)

    def look(self) -> None:
        """Draws the newest state and the newest images, if there are any."""
        before = self._watch.cycles
        self._watch.look()
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
            why = [IN_WORDS[reason] for reason in Reason if reason & state.reasons]
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
