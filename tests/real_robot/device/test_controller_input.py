"""Hold-to-run by an input of a KUKA controller, over UDP and by the clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_double
from pathlib import Path

import pytest
from tests.real_robot.moving_arms import PATIENT, swing, wait

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.driver_interface.interlocks import ControllerInput
from stringline.real_robot.drivers.fri.controller_io import IoValue, RunInput
from stringline.real_robot.drivers.fri.enums import IoDirection, IoType
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.emulators.fri.controller import RUN_PEDAL
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.ipc.heartbeat import MotionInputs, input_memory
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import RobotSession
from stringline.real_robot.robots.robot_settings import RobotSettings
from stringline.real_robot.safety.reasons import Mode, Reason

SETTINGS = {
    "name": "kuka",
    "transport": "fri",
    "control_hz": 50.0,
    "device_hz": 100.0,
    "lock_step": False,
    "emulator": {},
    "limits": {"cartesian_speed": None, "soft_start_s": 0.0, "acceleration": 10.0},
    "hold_to_run": {"input": RUN_PEDAL},
}
HOLDS_S = 0.2


@contextmanager
def armed(folder: Path, pedal: str = "pedal_up") -> Iterator[tuple[DeviceProcess, Emulator]]:
    """Starts an emulated arm whose pedal is in this state from the first message on."""
    factory = RobotFactory(RobotSettings.of(SETTINGS))
    with factory.backend.bare_emulator(capture=folder, **PATIENT["fri"]) as emulator:
        emulator.fault("arm", pedal)
        with RobotSession(factory) as session:
            device = session.start((), emulator=emulator).device
            device.begin()
            device.send(swing(IIWA14.home))
            yield device, emulator


def moves(device: DeviceProcess) -> bool:
    """Returns whether commands of the last second differ in the newest cycles."""
    last = [state.command[0] for state in device.recent()[-3:]]
    return max(last) - min(last) > 1e-4


def test_arms_move_only_while_the_pedal_is_held_and_hold_soon_after(tmp_path: Path) -> None:
    with armed(tmp_path) as (device, emulator):
        wait(lambda: Reason.RELEASED in device.latest().reasons)
        assert device.latest().mode is Mode.HOLD
        assert not moves(device)
        for _ in range(3):
            emulator.fault("arm", "pedal_down")
            device.send(swing(IIWA14.home))
            wait(lambda: device.latest().mode is Mode.RUN and moves(device))
            emulator.fault("arm", "pedal_up")
            released = time.monotonic()
            wait(lambda: device.latest().mode is Mode.HOLD)
            assert time.monotonic() - released < HOLDS_S
            assert Reason.RELEASED in device.latest().reasons
            wait(lambda: not moves(device))


@pytest.mark.slow
def test_a_pedal_that_is_down_from_the_start_permits_nothing(tmp_path: Path) -> None:
    with armed(tmp_path, "pedal_down") as (device, emulator):
        wait(lambda: Reason.RELEASED in device.latest().reasons)
        tick = device.latest().tick
        wait(lambda: device.latest().tick > tick + 30)
        assert device.latest().mode is Mode.HOLD
        emulator.fault("arm", "pedal_up")
        time.sleep(0.1)
        emulator.fault("arm", "pedal_down")
        device.send(swing(IIWA14.home))
        wait(lambda: device.latest().mode is Mode.RUN and moves(device))


@pytest.mark.slow
def test_lost_messages_end_the_permission(tmp_path: Path) -> None:
    with armed(tmp_path) as (device, emulator):
        emulator.fault("arm", "pedal_down")
        wait(lambda: device.latest().mode is Mode.RUN and moves(device))
        emulator.fault("arm", "cut")
        cut = time.monotonic()
        wait(lambda: device.latest().mode is not Mode.RUN)
        assert time.monotonic() - cut < 2 * HOLDS_S


def test_a_permission_expires_without_messages_and_ends_with_a_0() -> None:
    permission, now = input_memory(), [100.0]
    pedal = RunInput("Pedal", permission, lambda: now[0])

    def hear(value: float, kind: IoType = IoType.BOOLEAN, name: str = "Pedal") -> float:
        pedal.hear((IoValue(name, kind, IoDirection.INPUT, value),))
        return permission.value

    assert hear(1.0) == 0.0  # It has not been 0 yet.
    assert hear(0.0) == 0.0
    assert hear(1.0) == 100.0
    now[0] = 101.0
    assert permission.value == 100.0
    assert hear(1.0, IoType.ANALOG) == 0.0
    assert hear(1.0, IoType.DIGITAL) == 101.0
    assert hear(1.0, name="Other") == 0.0
    pedal.hear((IoValue("Pedal", IoType.BOOLEAN, IoDirection.OUTPUT, 1.0),))
    assert permission.value == 0.0
    assert MotionInputs(permission).ages_s()[0] > 10.0


def driver_of(ports: dict[str, str], name: str, version: str = "1.15") -> FriDriver:
    driver = FriDriver(ports, version=version)
    driver.permit_by(ControllerInput(name), c_double(0.0))
    return driver


def test_a_controller_without_the_input_is_refused_before_torque(tmp_path: Path) -> None:
    factory = RobotFactory(RobotSettings.of(SETTINGS | {"hold_to_run": {"input": "Run.Pedall"}}))
    problem = r"no input \(BOOLEAN or DIGITAL\) of the controller 'Run.Pedall'. Did you mean 'Run.P"
    with (
        factory.backend.bare_emulator(capture=tmp_path, **PATIENT["fri"]) as emulator,
        RobotSession(factory) as session,
        pytest.raises(RobotNotReadyError, match=problem),
    ):
        session.start((), emulator=emulator)


def test_impossible_inputs_are_refused() -> None:
    ports = {"arm": "127.0.0.1:30200"}
    with pytest.raises(ValueError, match=r"FRI 1.11 has no inputs for hold-to-run; allowed: 1.14"):
        driver_of(ports, "Run.Pedal", "1.11")
    with pytest.raises(ValueError, match=r"no arm of robot.hold_to_run 'rigth'.*Allowed: arm"):
        FriDriver(ports).permit_by(ControllerInput("Run.Pedal", "rigth"), c_double(0.0))
    with pytest.raises(ValueError, match=r"no setting of an input .* 'inputs'. Did you mean 'inpu"):
        ControllerInput.of({"inputs": "Run.Pedal"})
    with pytest.raises(ValueError, match="An input of a controller needs its name"):
        ControllerInput.of({"arm": "left"})
    lcm = SETTINGS | {"transport": "lcm"}
    with pytest.raises(ValueError, match=r"robot.transport is 'lcm'; allowed: 'fri'"):
        RobotSettings.of(lcm)
