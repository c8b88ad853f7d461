"""Guards of deliberate start, hold-to-run, the speed of real arms, and T1, for mutation tests."""

from typing import Any

import numpy as np

from stringline.real_robot.emulators.fri.controller import T1Supervision
from stringline.real_robot.operator import operator_keys as held_key
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.robots import robot_session
from stringline.real_robot.robots.robot_settings import RobotSettings
from stringline.real_robot.safety import limits

# Owner, attribute, and a value without effect.
INPUT_GUARDS: dict[str, tuple[Any, str, Any]] = {
    "single presses": (held_key, "_GAP_S", np.inf),
    "old presses": (held_key, "_STALE_S", np.inf),
    "keys before the question": (TerminalKeys, "forget", lambda _: None),
    "terminal": (robot_session, "check_terminal", lambda: None),
    "immediate start of real arms": (RobotSettings, "_check_inputs", lambda _: None),
    "speed of real arms": (limits, "REDUCED_SPEED", np.inf),
    "unit of the speed": (limits, "_FASTEST", np.inf),
    "speed in T1": (T1Supervision, "excess", lambda *_: 0.0),
}
