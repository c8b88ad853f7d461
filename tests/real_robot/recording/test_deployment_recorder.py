"""Deployments in the store: observations, commands and times, and deaths of the processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stringline
from stringline import ALOHA, ActionChunk, Camera, EpisodeAttributes, EpisodeStore, SafetyLimits
from stringline.datasets.contract.contract import Array
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.recording.frame_queue import FrameQueue, frames_layout, frames_memory

PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
CONTRACT = ALOHA.contract([Camera("overhead", 8, 6)], 50.0)
ABOUT = EpisodeAttributes(CONTRACT, "wave", 5, source="deployment")

OWNER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.safety.limits import SafetyLimits
if __name__ == "__main__":
    driver = AlohaDriver({ports!r}, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    log = LogPlan(Path({folder!r}) / "logs")
    device = DeviceProcess(driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None), log=log)
    device.connect()
    device.arm()
    about = EpisodeAttributes(ALOHA.contract([], 50.0), "wave", 5, source="deployment")
    with DeploymentRecorder(device, Path({folder!r}) / "episodes", about, ALOHA, frame_hz=10.0):
        device.begin()
        while not list((Path({folder!r}) / "episodes").glob(".open-*")):
            time.sleep(0.02)
        time.sleep(0.3)
        print("recording", flush=True)
        time.sleep(60)
"""


class Images:
    """A camera that takes an image every fourth cycle, and paints the number of the image."""

    def __init__(self) -> None:
        self.cycle = 0

    def frames(self) -> dict[str, Array]:
        number = self.cycle // 4
        return {
            "rgb/overhead": np.full((8, 6, 3), number, np.uint8),
            "time/overhead": np.asarray(4 * number * PERIOD),
            "intrinsics/overhead": np.eye(3, dtype=np.float32),
        }


@pytest.fixture
def device(waiting_emulator: Emulator, tmp_path: Path) -> Iterator[DeviceProcess]:
    driver = AlohaDriver(waiting_emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    with DeviceProcess(
        driver, ALOHA, LIMITS, lock_step=True, log=LogPlan(tmp_path / "logs")
    ) as running:
        running.connect()
        running.arm()
        yield running


def drive(
    device: DeviceProcess,
    emulator: Emulator,
    recorder: DeploymentRecorder,
    cycles: int,
    *,
    asking: int = 1000,
) -> list[DeviceState]:
    """Runs an episode in lock-step with plans of 0.6 s in its first cycles; returns its states."""
    images, states, target = Images(), [], ALOHA.home.copy()
    emulator.begin(0)
    device.begin()
    target[0] += 0.3
    before = device.latest().writes
    for cycle in range(cycles):
        device.observe(cycle * PERIOD)
        if cycle % 20 == 0 and cycle < asking:
            due = cycle * PERIOD + 0.02 * np.arange(30, dtype=np.float64)
            device.send(ActionChunk(due, np.tile(target, (30, 1)).astype(np.float32)))
        states.append(device.act())
        images.cycle = cycle
        recorder.look(states[-1], images)
        emulator.advance(dict(zip(device.arms, (states[-1].writes - before).tolist(), strict=True)))
    return states


@pytest.mark.slow
def test_the_episode_contains_observations_and_commands(
    waiting_emulator: Emulator, device: DeviceProcess, tmp_path: Path
) -> None:
    with DeploymentRecorder(
        device, tmp_path / "episodes", ABOUT, ALOHA, frame_hz=100.0
    ) as recorder:
        states = drive(device, waiting_emulator, recorder, 60)
        recorder.mark(0.1, by_hand=True)
        recorder.mark(0.2, by_hand=False)
        recorder.mark(0.5, by_hand=True)
        recorded = recorder.commit(True, {"stage": "done"})
    assert (recorded.steps, recorded.lost, recorded.problem) == (30, 0, "")
    episode = EpisodeStore.open(tmp_path / "episodes").episode(recorded.name)
    assert not episode.damaged()
    assert np.allclose(episode.arrays["time"], 0.02 * np.arange(30), atol=1e-12)
    kept = states[::2]
    assert np.array_equal(
        episode.arrays["action"], np.array([state.command for state in kept], np.float32)
    )
    assert np.array_equal(
        episode.arrays["joints/position"],
        np.array([state.arms.position for state in kept], np.float32),
    )
    seen = episode.arrays["rgb/overhead"][episode.arrays["frame/overhead"], 0, 0, 0]
    assert seen.tolist() == [step // 2 for step in range(30)]
    assert len(episode.arrays["time/overhead"]) == 15
    about = episode.attributes
    assert (about.success, about.source, about.contract) == (True, "deployment", CONTRACT)
    assert about.extra == {"interventions": [[5, 10], [25, 30]], "lost_records": 0, "stage": "done"}


@pytest.mark.slow
def test_a_cycle_without_a_new_state_after_a_late_step_gives_no_step(
    waiting_emulator: Emulator, device: DeviceProcess, tmp_path: Path
) -> None:
    blind = EpisodeAttributes(ALOHA.contract([], 50.0), "wave", 5, source="deployment")
    times = [0.0, 0.01, 0.02, 0.03, 0.04, 0.079, 0.079, 0.08, 0.09, 0.1]
    with DeploymentRecorder(device, tmp_path / "episodes", blind, ALOHA, frame_hz=25.0) as recorder:
        waiting_emulator.begin(0)
        device.begin()
        before = device.latest().writes
        for now in times:
            device.observe(now)
            state = device.act()
            assert state.arms.time == now
            waiting_emulator.advance(
                dict(zip(device.arms, (state.writes - before).tolist(), strict=True))
            )
        recorded = recorder.commit(True, {})
    assert recorded.problem == ""
    episode = EpisodeStore.open(tmp_path / "episodes").episode(recorded.name)
    assert np.allclose(episode.arrays["time"], [0.0, 0.02, 0.04, 0.079, 0.08, 0.1])


@pytest.mark.slow
def test_under_teleoperation_actions_are_the_requested_targets(
    waiting_emulator: Emulator, device: DeviceProcess, tmp_path: Path
) -> None:
    blind = EpisodeAttributes(ALOHA.contract([], 50.0), "wave", 5, source="teleoperation")
    with DeploymentRecorder(
        device, tmp_path / "episodes", blind, ALOHA, frame_hz=25.0, unfiltered=True
    ) as recorder:
        drive(device, waiting_emulator, recorder, 100, asking=1)
        recorded = recorder.commit(True, {})
    action = EpisodeStore.open(tmp_path / "episodes").episode(recorded.name).arrays["action"]
    assert len(action) == 30
    assert np.allclose(
        action[:, 0], ALOHA.home[0] + 0.3, atol=1e-6
    )  # The first command was less, since the target is too far for a cycle.
    with DeploymentRecorder(
        device, tmp_path / "episodes", blind, ALOHA, frame_hz=25.0, unfiltered=True
    ) as recorder:
        drive(device, waiting_emulator, recorder, 5, asking=0)
        assert recorder.commit(None, {}).problem == "no step was complete"


@pytest.mark.slow
def test_a_killed_recorder_costs_its_own_episode_and_no_cycle(
    waiting_emulator: Emulator, device: DeviceProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "episodes"
    with DeploymentRecorder(device, folder, ABOUT, ALOHA, frame_hz=25.0) as recorder:
        drive(device, waiting_emulator, recorder, 20)
        first = recorder.commit(None, {})
    with DeploymentRecorder(device, folder, ABOUT, ALOHA, frame_hz=25.0) as recorder:
        deadline = time.monotonic() + 20.0
        while not list(folder.glob(".open-*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert recorder.pid is not None
        os.kill(recorder.pid, signal.SIGKILL)
        assert len(drive(device, waiting_emulator, recorder, 20)) == 20
        assert recorder.commit(True, {}).problem == "the recorder died"
    store = EpisodeStore.open(folder)
    assert store.names() == [first.name]
    assert not store.episode(first.name).damaged()
    assert len(store.remove_leftovers()) == 1


@pytest.mark.slow
def test_an_episode_without_commit_is_discarded(
    waiting_emulator: Emulator, device: DeviceProcess, tmp_path: Path
) -> None:
    with DeploymentRecorder(device, tmp_path / "episodes", ABOUT, ALOHA, frame_hz=25.0) as recorder:
        drive(device, waiting_emulator, recorder, 5)
    with DeploymentRecorder(device, tmp_path / "episodes", ABOUT, ALOHA, frame_hz=25.0) as recorder:
        assert recorder.commit(None, {}).problem == "no step was complete"
    assert not [path for path in (tmp_path / "episodes").iterdir() if path.name != "zarr.json"]


@pytest.mark.slow
def test_a_killed_owner_loses_no_recorded_step(emulator: Emulator, tmp_path: Path) -> None:
    root = str(Path(stringline.__file__).parents[1])
    script = tmp_path / "owner.py"
    script.write_text(OWNER.format(root=root, ports=emulator.ports, folder=str(tmp_path)))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "recording\n"
        owner.kill()
    store, deadline = EpisodeStore.open(tmp_path / "episodes"), time.monotonic() + 20.0
    while not store.names():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (episode,) = store.episodes()
    assert len(episode.arrays["time"]) > 5
    assert episode.attributes.success is None
    assert episode.attributes.extra["ended"] == "the process that drove the arms died"


def test_a_recorder_needs_an_incident_log(tmp_path: Path) -> None:
    driver = AlohaDriver({"left": "/dev/left", "right": "/dev/right"})
    with (
        DeviceProcess(driver, ALOHA, LIMITS) as device,
        pytest.raises(
            ValueError,
            match="recorded from the incident log of the device process: log.folder=FOLDER",
        ),
    ):
        DeploymentRecorder(device, tmp_path, ABOUT, ALOHA, frame_hz=25.0)


def test_a_queue_accepts_complete_new_captures_only() -> None:
    memory, images = frames_memory(CONTRACT), Images()
    writer, reader = FrameQueue(memory, CONTRACT), FrameQueue(memory, CONTRACT)
    writer.put({})
    writer.put(images.frames())
    writer.put(images.frames())
    images.cycle = 5
    writer.put(images.frames())
    looks = reader.fresh()
    assert [int(look["number"]) for look in looks] == [1, 2]
    assert reader.newest_time(looks[1]) == 0.04
    assert not reader.fresh()
    with pytest.raises(
        ValueError, match=r"rgb/overhead has shape \(4, 4, 3\); allowed: \(8, 6, 3\)"
    ):
        writer.put(
            {
                **images.frames(),
                "rgb/overhead": np.zeros((4, 4, 3), np.uint8),
                "time/overhead": np.asarray(9.0),
            }
        )
    assert frames_layout(CONTRACT).itemsize == 8 + 8 + 8 * 6 * 3 + 36
