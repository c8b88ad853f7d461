"""Camera processes in real time: they die, hang and restart, and the arms hold meanwhile."""

import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from pathlib import Path

import numpy as np
import pytest

from stringline import ALOHA, ActionChunk, Camera, EpisodeAttributes, EpisodeStore, SafetyLimits
from stringline.datasets.contract.contract import Observation
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.cameras.cameras import (
    CameraHandle,
    CameraReport,
    Cameras,
    RestartPolicy,
    check_cameras,
)
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.safety.reasons import Mode, Reason

NAMES, SIZE, HZ, PERIOD = ("overhead", "table"), 16, 25.0, 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0, oldest_image_s=0.3)
CONTRACT = ALOHA.contract([Camera(name, SIZE, SIZE, "simulated") for name in NAMES], 50.0)
ABOUT = EpisodeAttributes(CONTRACT, "wave", 5, source="deployment")


class Waving:
    """A policy that waves with the left waist, and plans for two seconds each time."""

    def plan(self, observation: Observation) -> ActionChunk:
        due = float(observation["time"]) + 0.02 * np.arange(100.0)
        way = np.tile(ALOHA.home, (100, 1)).astype(np.float32)
        way[:, 0] += 0.2 * np.sin(4.0 * due)
        return ActionChunk(due, way)


@dataclass
class World:
    """Emulated arms, their cameras and their device process."""

    emulator: Emulator
    cameras: Cameras
    device: DeviceProcess

    def handle(self, name: str) -> CameraHandle:
        return self.cameras.handles[NAMES.index(name)]

    def run(
        self,
        report: Callable[[float], bool],
        seconds: float = 15.0,
        recorder: DeploymentRecorder | None = None,
    ) -> tuple[RealTimeEpisode, list[DeviceState]]:
        """Runs the policy until the report ends it; returns every cycle."""
        states: dict[int, DeviceState] = {}
        enough = [False]

        def look(state: DeviceState, now: float) -> None:
            states.update(
                {past.tick: past for past in self.device.recent() if past.session == state.session}
            )
            if recorder is not None:
                recorder.look(state, self.cameras)
            enough[0] = report(now)

        robot = RealTimeRobot(self.device, self.cameras, CONTRACT, ALOHA)
        episode = robot.run(
            Waving(), seconds, execute_steps=10, done=lambda: enough[0], report=look
        )
        assert enough[0], f"Not within {seconds} s: {self.device.latest().reasons!r}"
        return episode, [states[tick] for tick in sorted(states)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Emulator(
        plant="first_order", cameras=tuple(NAMES), image_size=SIZE, frame_hz=HZ
    ) as emulator:
        settings = [
            CameraSettings(
                name,
                CameraDriver.EMULATED,
                source=emulator.images,
                height=SIZE,
                width=SIZE,
                hz=HZ,
                depth=True,
            )
            for name in NAMES
        ]
        driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
        log = LogPlan(tmp_path_factory.mktemp("log"))
        with Cameras(settings, RestartPolicy(silent_s=1.2, pause_s=0.6, settled_s=0.2)) as cameras:
            checklist = Checklist(shown := io.StringIO())
            measured = CalibratedCamera(
                "emulated/table", "world", np.eye(4), (SIZE, SIZE), 1.0, 0.1
            )
            check_cameras(cameras, checklist, Calibration({"table": measured}))
            checklist.check_passed()
            notes = ("not in the calibration file: the nominal", "calibrated, residual 1 mm")
            for name, known in zip(NAMES, notes, strict=True):
                assert (
                    f"ok      camera {name}: emulated emulated/{name}, 16x16 at 25 Hz, of the "
                    f"emulated world ; {known}"
                ) in shown.getvalue()
            with DeviceProcess(driver, ALOHA, LIMITS, log=log, cameras=cameras.liveness) as device:
                device.connect()
                device.arm()
                cameras.supervise()
                yield World(emulator, cameras, device)


def steady(states: list[DeviceState]) -> bool:
    """Returns whether no target jumped."""
    steps = np.abs(np.diff([state.command for state in states], axis=0))
    ticks = np.diff([state.tick for state in states])
    return bool((steps <= np.outer(ticks, LIMITS.velocity * PERIOD) + 1e-9).all())


@pytest.mark.slow
def test_images_come_with_their_times_and_processes_are_light(world: World) -> None:
    first = world.cameras.frames()
    deadline = time.monotonic() + 10.0
    while (now := world.cameras.frames())["time/table"] == first["time/table"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (now["depth/table"] == 1000).all()
    assert now["rgb/table"].shape == (SIZE, SIZE, 3)
    number, before = (int(frames["rgb/table"][0, 0] @ [1, 256, 65536]) for frames in (now, first))
    assert number > before  # The number in the image.
    assert np.allclose(now["intrinsics/table"][:2, 2], SIZE / 2)
    assert 0.0 <= time.monotonic() - float(now["time/table"]) < 5.0
    for handle in world.cameras.handles:
        mapped = Path(f"/proc/{handle.pid}/maps").read_text()
        assert "torch" not in mapped
        assert "mujoco" not in mapped


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [(signal.SIGKILL, "overhead"), (signal.SIGSTOP, "table")]
)
def test_arms_hold_for_a_dead_or_hanging_camera_until_its_restart_and_no_record_is_lost(
    world: World, tmp_path: Path, kind: signal.Signals, name: str
) -> None:
    struck: list[float] = []
    back: list[float] = []
    said: list[str] = []
    messages = CameraReport(world.device.cameras, said.append)
    before = world.handle(name).pid

    def report(now: float) -> bool:
        messages.note(world.device.recent())
        state = world.device.latest()
        if now > 0.6 and not struck and state.mode is Mode.RUN:
            assert before is not None
            os.kill(before, kind)
            struck.append(time.monotonic())
        goes_on = (
            bool(struck)
            and state.mode is Mode.RUN
            and world.handle(name).pid != before
            and not state.old_cameras
        )
        if goes_on and not back:
            back.append(now)
        return goes_on and now > back[0] + 0.3

    with DeploymentRecorder(world.device, tmp_path, ABOUT, ALOHA, frame_hz=HZ) as recorder:
        episode, states = world.run(report, recorder=recorder)
        recorded = recorder.commit(None, {})
    blind = held_without_images(states, 1 << NAMES.index(name), struck[0])
    assert steady(states)
    assert not episode.fault
    assert f"The arms hold: no new images from {name}." in said
    assert said[-1].startswith("All cameras deliver images again, after ")
    assert episode.waited_for[name] > 0
    assert any(line.startswith(f"Camera {name}: ") for line in world.cameras.summary())
    assert (recorded.lost, recorded.problem) == (0, "")
    assert_recorded_throughout(tmp_path, recorded.name, name, struck[0], blind)


def held_without_images(states: list[DeviceState], bit: int, struck: float) -> list[DeviceState]:
    """Returns the states without images of a camera, and asserts that the arms hold in them."""
    later = dropwhile(
        lambda state: not (state.old_cameras & bit and state.arms.time > struck), states
    )
    blind = list(takewhile(lambda state: state.old_cameras & bit, later))
    assert len(blind) > 20
    assert all(state.mode is Mode.HOLD and state.reasons & Reason.CAMERA for state in blind)
    assert blind[0].arms.time - struck < LIMITS.oldest_image_s + 0.5
    resting = [state.command for state in blind[20:]]
    assert np.ptp(resting, axis=0).max() == 0.0
    return blind


def assert_recorded_throughout(
    store: Path, episode: str, name: str, struck: float, blind: list[DeviceState]
) -> None:
    """Asserts that cycles and images before, during and after the failure are in the store."""
    kept = EpisodeStore.open(store).episode(episode)
    assert not kept.damaged()
    times, captured = kept.arrays["time"], kept.arrays[f"time/{name}"]
    assert times[0] < struck - 0.3
    assert times[-1] > blind[-1].arms.time
    assert (np.diff(captured) > 0).all()
    assert captured[0] < struck < captured[-1]
    assert ((times > blind[0].arms.time) & (times < blind[-1].arms.time)).sum() > 10


@pytest.mark.slow
def test_the_arms_wait_for_a_camera_that_pauses(world: World) -> None:
    stopped: list[float] = []
    number = world.handle("overhead").pid
    assert number is not None

    def report(now: float) -> bool:
        state = world.device.latest()
        if not stopped and state.mode is Mode.RUN:
            os.kill(number, signal.SIGSTOP)
            stopped.append(now)
        if stopped and now > stopped[0] + 0.6:
            os.kill(number, signal.SIGCONT)
            return state.mode is Mode.RUN and not state.old_cameras
        return False

    _, states = world.run(report)
    held = [state for state in states if state.old_cameras]
    assert held
    assert all(state.mode is Mode.HOLD for state in held)
    assert steady(states)
    assert world.handle("overhead").pid == number
    as_a_fault = replace(
        next(state for state in held if state.old_cameras == 1), fault_reasons=Reason.CAMERA
    )
    reasons = explain_fault(as_a_fault, world.device)
    assert reasons[0] == "a camera delivers no new images (overhead)."
    # A busy computer, such as one that runs tests, is named as well.
    assert all("computer is busy" in reason for reason in reasons[1:])


@pytest.mark.slow
def test_a_suspended_recorder_costs_no_cycle_and_no_step(world: World, tmp_path: Path) -> None:
    with DeploymentRecorder(world.device, tmp_path, ABOUT, ALOHA, frame_hz=HZ) as recorder:
        number, stopped = recorder.pid, list[float]()
        assert number is not None

        def report(now: float) -> bool:
            if not stopped and now > 0.3 and list(tmp_path.glob(".open-*")):
                os.kill(number, signal.SIGSTOP)
                stopped.append(now)
            return bool(stopped) and now > stopped[0] + 0.8

        try:
            _, states = world.run(report, recorder=recorder)
        finally:
            os.kill(number, signal.SIGCONT)
        recorded = recorder.commit(None, {})
    meanwhile = [state for state in states if state.arms.time > states[-1].arms.time - 0.6]
    assert np.ptp([state.command[0] for state in meanwhile]) > 0.05  # The arms moved on.
    assert steady(states)
    assert (recorded.lost, recorded.problem) == (0, "")
    times = EpisodeStore.open(tmp_path).episode(recorded.name).arrays["time"]
    cycles = np.array([state.arms.time for state in states])
    assert times[-1] > states[-1].arms.time - 0.05
    # A step for each control period for which there was a cycle.
    assert len(times) >= 0.9 * len(
        np.unique(np.floor((cycles[cycles >= times[0]] - times[0]) * 50))
    )
