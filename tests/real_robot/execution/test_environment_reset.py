"""Resets of the environment of emulated arms in real time, without a fault and after one."""

import time
from collections.abc import Mapping

import pytest

from stringline import ALOHA, IIWA14, Embodiment, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.execution.real_time import reset_environment
from stringline.real_robot.robots.backends import emulated_backend
from stringline.real_robot.safety.reasons import Mode

STOPS: dict[str | None, tuple[str, ...]] = {None: (), "fri": ("stop",), "lcm": ("stop", "crash")}
# This machine may be busy: controllers that miss answers must not end the test.
PATIENT: dict[str, float] = {"most_missed": 60, "good": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "transport", "settings"),
    [(ALOHA, None, {}), (IIWA14, "fri", PATIENT), (IIWA14, "lcm", {})],
    ids=["aloha", "fri", "lcm"],
)
def test_world_follows_world_without_a_fault_and_after_one(
    body: Embodiment, transport: str | None, settings: Mapping[str, float]
) -> None:
    kind, limits = (
        emulated_backend(body.name, transport),
        SafetyLimits.of(body, cartesian_speed=None, soft_start_s=0.0),
    )
    with kind.bare_emulator(**settings) as emulator:
        driver = kind.driver(emulator.ports, period_s=0.01, lock_step=False, read_only=False)
        with DeviceProcess(driver, body, limits) as device:
            device.connect()
            device.arm()
            for seed in range(3):
                reset_environment(emulator, device, seed, {})
                device.begin()
                end, seen = time.monotonic() + 0.4, 0
                while time.monotonic() < end:
                    time.sleep(0.02)
                    states = device.recent()
                    assert all(state.mode is not Mode.FAULT for state in states), seed
                    seen += len(states)
                assert seen > 5
            for fault in STOPS[transport]:
                emulator.fault("arm", fault)
                deadline = time.monotonic() + 10.0
                while device.latest().mode is not Mode.FAULT:
                    assert time.monotonic() < deadline, fault
                    time.sleep(0.02)
                reset_environment(
                    emulator, device, 1, {}
                )  # In a new world the cause of the stop was removed.
                device.begin()
                assert device.latest().mode is not Mode.FAULT
