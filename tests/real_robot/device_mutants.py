"""Guards of liveness, limits, inputs and framing, for mutation tests in the owner's process.

The device process imports the package anew, so only guards that the tests' own process uses can be
removed here.
"""

from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import FINITE, POSITIVE
from stringline.real_robot.device import device_process, scheduling
from stringline.real_robot.device.device_loop import DeviceLoop, SuspensionClock
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import SafeCommand
from stringline.real_robot.drivers.fri import versions
from stringline.real_robot.ipc.heartbeat import MotionInputs
from stringline.real_robot.operator.input_line import InputLine
from stringline.real_robot.safety import limits, robot_stages
from stringline.real_robot.safety.filter import SafetyFilter
from stringline.real_robot.safety.robot_stages import StateCheck
from stringline.real_robot.safety.stage_context import Cycle


def _as_if_sent(loop: DeviceLoop, sent: object, command: SafeCommand, now: float) -> None:
    loop._command = command.position


def _count_always(safety: SafetyFilter, _: object) -> None:
    safety._followed_s += safety._period_s


def _count_plans(safety: SafetyFilter, cycle: Cycle) -> None:
    safety._followed_s += safety._period_s * (cycle.wanted is not None)


# Owner, attribute, and a value without effect.
DEVICE_GUARDS: dict[str, tuple[Any, str, Any]] = {
    "silent state": (DeviceState, "silent", lambda self: self),
    "time of silence": (device_process, "_SILENT_S", np.inf),
    "answers of a frozen process": (device_process, "_UNRESPONSIVE_S", np.inf),
    "hold flag": (DeviceProcess, "hold", lambda _: None),
    "heartbeat of the owner": (device_process.Heartbeat, "_beat", lambda _: None),
    "real-time priority": (scheduling, "request_priority", lambda: ""),
    "late commands": (SafetyFilter, "withdraw", lambda *_: None),
    "suspension": (SuspensionClock, "elapsed_s", lambda _: 0.0),
    "ages of inputs": (MotionInputs, "ages_s", lambda _: (0.0, 0.0)),
    "line that permits": (InputLine, "check_permits", lambda _: None),
    "line that can be read": (InputLine, "check_readable", lambda _: None),
    "units of accelerations": (limits, "_ACCELERATION", POSITIVE),
    "units of tracking": (limits, "_TRACKING_RAD", POSITIVE),
    "units of margins": (limits, "_MARGIN_RAD", FINITE),
    "units of efforts": (limits, "_EFFORT_NM", POSITIVE),
    "units of walls": (limits, "_WALL_M", FINITE),
    "units of ages": (limits, "_AGE_S", POSITIVE),
    "units of temperatures": (limits, "_TEMPERATURE", FINITE),
    "commands that were not sent": (DeviceLoop, "_judge", _as_if_sent),
    "space between commands": (DeviceLoop, "_space", lambda *_: 0.0),
    "goals of grippers": (SafetyFilter, "_beginning", lambda _, state, **__: state.anchor.copy()),
    "time of the soft start": (SafetyFilter, "_time_soft_start", _count_always),
    "soft start after a hold": (SafetyFilter, "_time_soft_start", _count_plans),
    "numbers in a state": (StateCheck, "_is_sound", staticmethod(lambda *_: True)),
    "repair of a state": (StateCheck, "repaired", lambda _, state, *__: state),
    "ages of the future": (robot_stages, "is_age", lambda _: True),
    "frame of FRI 2.7": (versions, "unframed", lambda datagram: datagram[4:-4]),
}
