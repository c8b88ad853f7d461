"""Tells whether, and why, the arms have held."""

import functools
import operator

from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.safety.reasons import Mode, Reason

NO_HOLD = Reason(0)


def hold_reasons(state: DeviceState) -> Reason:
    """Returns the reasons of a hold that is not due to a missing target; without one, none."""
    waits = state.mode is not Mode.HOLD or state.reasons & Reason.STARVED
    return NO_HOLD if waits else state.reasons


class HoldWatch:
    """Reports the holds since its last report, also short ones.

    Args:
        device: Its states of about the last second are seen.
    """

    def __init__(self, device: DeviceProcess) -> None:
        self._device = device
        self._seen = -1

    def reasons(self) -> Reason:
        """Returns the reasons of all holds since the last call."""
        fresh = [state for state in self._device.recent() if state.tick > self._seen]
        self._seen = max([self._seen, *(state.tick for state in fresh)])
        return functools.reduce(operator.or_, map(hold_reasons, fresh), NO_HOLD)
