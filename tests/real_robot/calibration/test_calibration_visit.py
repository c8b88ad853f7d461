"""The motion of arms from pose to pose in a calibration: visited by plans, or moved by hand."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, IIWA14, Camera, SafetyLimits
from stringline.datasets.contract.contract import Array, Observation
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.calibration.visit import ByHand, PoseVisit
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.ipc.array_messages import receive, send
from stringline.real_robot.operator.operator_keys import Key
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import NoCameras
from stringline.real_robot.safety.reasons import Reason

HZ, ASK_S = 50.0, 0.1
AWAY = np.array([0.3, -0.2, 0.1, 0.25, 0.0, -0.28, 0.2, -0.5])
POSES = np.stack([IIWA14.home + AWAY, IIWA14.home - 0.5 * AWAY, IIWA14.home + 0.6 * AWAY])


class Arms:
    """Arms that follow plans exactly, with a camera whose images are new in every plan."""

    def __init__(self, **changes: Any) -> None:
        plain = {
            "method": "board",
            "cameras": ["wrist"],
            "poses": POSES.tolist(),
            "file": "a.yaml",
            "looks": 2,
        }
        self.settings = CalibrationSettings.of(plain | changes, IIWA14)
        self.said: list[str] = []
        self.taken: list[tuple[int, float, NDArray[np.float64]]] = []
        self.held = Reason(0)
        self.visit = PoseVisit(
            IIWA14,
            HZ,
            self.settings,
            take=self.take,
            report=self.said.append,
            holds=lambda: self.held,
            command=lambda: self.command,
        )
        self.now, self.q, self.stuck = 5.0, IIWA14.home.copy(), False
        self.command = IIWA14.home.copy()
        self.ways: list[NDArray[np.float64]] = []

    def take(self, number: int, observation: Observation) -> None:
        self.taken.append(
            (
                number,
                float(observation["time/wrist"]),
                observation["joints/position"].astype(np.float64),
            )
        )

    def ask(self) -> None:
        seen = {
            "time": np.asarray(self.now),
            "joints/position": self.q.astype(np.float32),
            "time/wrist": np.asarray(self.now - 0.03),
        }
        chunk = self.visit.plan(seen)
        assert chunk.time[0] == self.now
        assert chunk.time[-1] - chunk.time[0] >= 1.0
        steps = round(ASK_S * HZ)
        self.ways.append(chunk.action[: steps + 1].astype(np.float64))
        self.now += ASK_S
        if not self.stuck and not self.held:
            self.q[:7] = chunk.action[steps][:7].astype(np.float64)

    def until_done(self) -> None:
        for _ in range(round(self.visit.longest_s / ASK_S) + 2):
            if self.visit.done:
                return
            self.ask()
        raise AssertionError("It takes longer than it says.")


def test_poses_are_visited_smoothly_with_still_grippers_and_images_are_taken_at_rest() -> None:
    arms = Arms()
    arms.q[7] = 0.3  # It holds the board, with this goal.
    arms.command[7] = 0.1
    arms.until_done()
    assert [number for number, _, _ in arms.taken] == [1, 1, 2, 2, 3, 3]
    assert arms.visit.reached == 3
    assert not arms.said
    for number, _, q in arms.taken:
        np.testing.assert_allclose(q, [*POSES[number - 1][:7], 0.3], atol=1e-6)
    np.testing.assert_allclose([way[:, 7] for way in arms.ways], 0.1, atol=1e-6)
    times = [when for _, when, _ in arms.taken]
    assert all(later > earlier for earlier, later in pairwise(times))  # Never the same image twice.
    revolute = np.concatenate([np.diff(way[:, :7], axis=0) for way in arms.ways]) * HZ
    assert np.abs(revolute).max() <= arms.settings.speed * 1.01
    jumps = [np.abs(b[0] - a[-1]).max() for a, b in pairwise(arms.ways)]
    assert max(jumps) < 1e-6


def test_an_unreached_pose_is_reported_and_skipped() -> None:
    arms = Arms(patience_s=1.0)
    arms.stuck = True
    arms.until_done()
    assert arms.taken == []
    assert arms.said[0] == "Pose 1 was not reached: arm/a1 is 0.30 rad away."
    assert len(arms.said) == 3
    assert arms.visit.reached == 0


def test_a_frozen_camera_is_awaited_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(patience_s=1.0)
    frozen = arms.visit.plan
    monkeypatch.setattr(
        arms.visit, "plan", lambda seen: frozen({**seen, "time/wrist": np.asarray(1.0)})
    )
    arms.until_done()
    assert arms.taken == []
    assert (
        arms.said[0]
        == "Pose 1 was not reached: the arms do not rest, or a camera shows no new images."
    )


def test_after_a_hold_it_continues_from_the_measured_joints() -> None:
    arms = Arms(looks=1)
    while not arms.taken:
        arms.ask()
    for _ in range(5):
        arms.ask()
    arms.q[:7] += 0.05  # A person moved them during the hold.
    arms.ways.clear()
    assert arms.visit.again() is arms.visit
    arms.ask()
    np.testing.assert_allclose(arms.ways[0][0], arms.q, atol=0.02)
    arms.until_done()
    assert [number for number, _, _ in arms.taken] == [1, 2, 3]


@pytest.mark.parametrize("reason", [Reason.RELEASED, Reason.CONTROLLER_REFUSES])
@pytest.mark.parametrize("asked", [3, 9, 14], ids="after {} plans".format)
def test_during_a_hold_the_motion_waits_and_then_begins_again_slowly(
    asked: int, reason: Reason
) -> None:
    arms = Arms(looks=1, patience_s=1.0)
    for _ in range(asked):
        arms.ask()
    arms.held = reason
    arms.q = arms.q - 0.05  # An arm that a person pushes, or that sags.
    for _ in range(300):
        arms.ask()
        assert np.abs(arms.ways[-1] - arms.q)[:, :7].max() < 0.03
    arms.held = Reason(0)
    arms.ways.clear()
    arms.until_done()
    assert [number for number, _, _ in arms.taken] == [1, 2, 3]
    assert arms.said == []
    revolute = np.concatenate([np.diff(way[:, :7], axis=0) for way in arms.ways]) * HZ
    assert np.abs(revolute).max() <= arms.settings.speed * 1.01
    assert max(np.abs(b[0] - a[-1])[:7].max() for a, b in pairwise(arms.ways)) < 1e-6


def test_the_time_of_a_visit_does_not_pass_while_hold_to_run_is_released() -> None:
    arms = Arms()
    longest_s = arms.visit.longest_s
    assert not arms.visit.is_over(longest_s)
    assert arms.visit.is_over(longest_s + 0.1)
    for reason in (Reason.RELEASED, Reason.CONTROLLER_REFUSES, Reason(0)):
        arms.held = reason
        for _ in range(10):
            arms.ask()
    assert not arms.visit.is_over(longest_s + 0.8)
    assert arms.visit.is_over(longest_s + 1.1)
    arms.until_done()
    assert arms.visit.is_over(0.0)


class Pressed:
    """A person who presses these keys, one after the other."""

    def __init__(self, *keys: Key) -> None:
        self._keys = list(keys)

    def pressed(self, *anew: Key) -> Key | None:
        return None

    def wait(self, *keys: Key) -> Key:
        key = self._keys.pop(0)
        assert key in keys
        return key

    def wait_anew(self, *keys: Key) -> Key:
        return self.wait(*keys)


@pytest.fixture
def emulated() -> Iterator[tuple[Emulator, DeviceProcess]]:
    with Emulator(plant="first_order", cameras=("overhead",), frame_hz=25.0) as emulator:
        driver = AlohaDriver(
            emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.5, read_only=True
        )
        with DeviceProcess(driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None)) as device:
            device.connect()
            device.arm()
            yield emulator, device


class Looking:
    """The last image of an emulated camera, by the clock."""

    def __init__(self, address: str) -> None:
        self._address = address

    def frames(self) -> dict[str, Array]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as camera:
            camera.connect(self._address)
            send(camera, {"camera": "overhead", "after": 0})
            return receive(camera)[1]


@pytest.mark.slow
def test_by_hand_images_are_taken_at_a_key(
    emulated: tuple[Emulator, DeviceProcess],
) -> None:
    emulator, device = emulated
    plain = {
        "method": "board",
        "cameras": ["overhead"],
        "held_by": "left",
        "settle_s": 0.1,
        "patience_s": 4.0,
        "file": "a.yaml",
    }
    settings = CalibrationSettings.of(plain, ALOHA)
    contract = ALOHA.contract([Camera("overhead", 128, 128, "simulated")], HZ)
    said, taken = list[str](), list[tuple[int, dict[str, Array]]]()

    def run(source: FrameSource, chosen: CalibrationSettings, *keys: Key) -> int:
        hand = ByHand(
            device, source, contract, ALOHA, chosen, keys=Pressed(*keys), report=said.append
        )
        return hand.run(lambda number, seen: taken.append((number, dict(seen))))

    assert run(Looking(emulator.images), settings, Key.KEEP, Key.KEEP, Key.END) == 2
    assert [number for number, _ in taken] == [1, 2]
    assert taken[1][1]["time/overhead"] > taken[0][1]["time/overhead"]
    np.testing.assert_allclose(taken[0][1]["joints/position"], ALOHA.home, atol=0.02)
    assert device.latest().writes.tolist() == [0, 0]
    assert run(NoCameras(), replace(settings, patience_s=0.1), Key.KEEP, Key.END) == 0
    assert said[-1] == (
        "No image was taken: the arms moved, or a camera shows no new images. Hold the arms still."
    )
