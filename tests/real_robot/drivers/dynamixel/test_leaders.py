"""Leader arms over pseudo-terminals: states, checks, and that nothing can be written to them."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaLeaders
from stringline.real_robot.drivers.dynamixel.bus import Bus, ReadOnlyBus, ReadOnlyError
from stringline.real_robot.drivers.dynamixel.control_table import WIDOWX
from stringline.real_robot.emulators.plants.plant import HandPlant, load_hand, save_hand
from stringline.real_robot.emulators.program.emulator_client import LeaderEmulator

TICK = table.TICK_RAD
ELBOW = 2


def way(bend: float = 0.3, opening: float = 0.5) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A hand that bends the left elbow and opens the right gripper within half a second."""
    end = ALOHA.home.copy()
    end[ELBOW] += bend
    end[-1] = opening
    return np.array([0.0, 0.5]), np.stack([ALOHA.home, end])


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[LeaderEmulator]:
    save_hand(tmp_path / "way.npz", *way())
    with LeaderEmulator(hand=tmp_path / "way.npz") as running:
        yield running


def leaders(emulated: LeaderEmulator) -> AlohaLeaders:
    return AlohaLeaders(emulated.ports, answer_timeout_s=0.2)


def test_leaders_measure_the_pose_of_the_hand(emulated: LeaderEmulator) -> None:
    arms = leaders(emulated)
    arms.connect()
    before = arms.read(lambda: 1.5)
    assert before.time == 1.5
    assert np.abs(before.position - ALOHA.home).max() < TICK
    emulated.begin(0)
    deadline = time.monotonic() + 20.0
    while not emulated.outcome()["expired"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    after = arms.read(time.monotonic)
    for arm in arms._pair.arms:
        with pytest.raises(ReadOnlyError, match="is only read"):
            arm.bus.send(protocol.encode(1, protocol.Instruction.REBOOT))
    arms.close()
    assert np.abs(after.position[:-1] - way()[1][-1][:-1]).max() < TICK
    assert after.position[-1] == pytest.approx(
        0.5, abs=0.005
    )  # An opening, through the leader's own linkage.
    assert len(arms.servos) == len(after.servo_misses) == 18
    assert not after.servo_misses.any()


def test_a_leader_with_other_settings_or_torque_is_refused(emulated: LeaderEmulator) -> None:
    with Line(emulated.ports["left"]) as bus:
        bus.write_register(2, table.DRIVE_MODE, 1)
        bus.write_register(5, table.SECONDARY_ID, 3)
        bus.write_register(7, table.TORQUE_ENABLE, 1)
    with pytest.raises(RobotNotReadyError) as refused:
        leaders(emulated).connect()
    output = " ".join(refused.value.problems)
    assert "left/shoulder (id 2)" in output
    assert "Drive Mode is 1; expected is 0." in output
    assert "Secondary (Shadow) ID is 3; expected is 4." in output
    with Line(emulated.ports["left"]) as bus:
        bus.write_register(2, table.DRIVE_MODE, 0)
        bus.write_register(5, table.SECONDARY_ID, 4)
    with pytest.raises(
        RobotNotReadyError,
        match=r"left/wrist_angle \(id 7\) .* has torque, so it cannot be moved by hand",
    ):
        leaders(emulated).connect()


def test_each_arm_needs_a_port() -> None:
    with pytest.raises(ValueError, match="There is no arm 'lefft'. Did you mean 'left'"):
        AlohaLeaders({"lefft": "/dev/null", "right": "/dev/null"})
    with pytest.raises(ValueError, match="There is no port for the arm 'right'"):
        AlohaLeaders({"left": "/dev/null"})


class Line(Bus):
    """A port that is closed at the end of a block."""

    def __enter__(self) -> "Line":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize(
    "packet",
    [
        protocol.write(1, table.GOAL_POSITION.address, b"\x00\x08\x00\x00"),
        protocol.write(1, table.TORQUE_ENABLE.address, b"\x01"),
        protocol.sync_write(table.GOAL_POSITION.address, {1: b"\x00\x08\x00\x00"}),
        protocol.encode(1, protocol.Instruction.REBOOT),
        protocol.write(1, table.INDIRECT_ADDRESS.address - 1, b"\x00\x00"),
        protocol.write(1, table.INDIRECT_DATA.address, b"\x00"),
        protocol.write(1, table.INDIRECT_DATA.address - 1, b"\x00\x00"),
        protocol.ping(1) + protocol.encode(1, protocol.Instruction.REBOOT),
        protocol.encode(1, 0x04, b"\x74\x00\x00\x08\x00\x00"),
        b"\xff\xff\xfd",
    ],
)
def test_a_read_only_line_sends_only_reads(emulated: LeaderEmulator, packet: bytes) -> None:
    bus = ReadOnlyBus(emulated.ports["left"])
    bus.open()
    with pytest.raises(ReadOnlyError, match=r"is only read; refused: .*\. Nothing was sent\."):
        bus.send(packet)
    with pytest.raises(ReadOnlyError):
        bus.write_register(1, table.GOAL_POSITION, 2048)
    assert bus.read_register(1, table.TORQUE_ENABLE) == 0
    bus.close()


def test_a_hand_follows_its_path_whatever_the_servos_do() -> None:
    hand = HandPlant(*way())
    hand.advance(ALOHA.home + 1.0)
    assert np.array_equal(hand.measure()[0], ALOHA.home)  # It waits for the episode.
    hand.begin(0, {})
    for _ in range(25):
        hand.advance(ALOHA.home + 1.0)
    position, velocity, effort = hand.measure()
    assert position[ELBOW] - ALOHA.home[ELBOW] == pytest.approx(0.15)
    assert velocity[ELBOW] == pytest.approx(0.6)
    assert not effort.any()
    assert not hand.outcome()["expired"]
    for _ in range(100):
        hand.advance(ALOHA.home)
    assert hand.outcome()["expired"]
    assert np.array_equal(hand.measure()[0], way()[1][-1])
    with pytest.raises(ValueError, match="A hand has no options; got table_height"):
        hand.begin(0, {"table_height": 0.1})


def test_a_path_is_read_from_its_file_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "way.npz"
    save_hand(file, way()[0] + 7.0, way()[1])
    time_s, position = load_hand(file, 14)
    assert time_s.tolist() == [0.0, 0.5]
    assert np.array_equal(position, way()[1])
    with pytest.raises(ValueError, match=r"positions \(2, 14\); allowed: .* \(T, 13\)"):
        load_hand(file, 13)
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"way\.npz is not the path of a hand"):
        load_hand(file, 14)


def test_the_table_of_the_leader_is_the_published_one() -> None:
    assert [servo.ident for servo in WIDOWX] == list(range(1, 10))
    assert [servo.drive_mode for servo in WIDOWX] == [0, 0, 1, 0, 1, 0, 1, 0, 0]
    assert {servo.ident: servo.master for servo in WIDOWX if servo.master} == {3: 2, 5: 4}
    radians = {
        servo.joint: (
            table.angle_of_ticks(servo.lower_tick),
            table.angle_of_ticks(servo.upper_tick),
        )
        for servo in WIDOWX
    }
    assert radians["shoulder"] == pytest.approx((-1.885, 1.990), abs=1e-3)
    assert radians["elbow"] == pytest.approx((-2.148, 1.605), abs=1e-3)
    assert radians["wrist_angle"] == pytest.approx((-1.746, 2.146), abs=1e-3)
