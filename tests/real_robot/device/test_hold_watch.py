"""The holds of the arms between two looks at their recent states."""

from types import SimpleNamespace
from typing import cast

from stringline.real_robot.device.device_process import NO_HOLD, DeviceProcess, HoldWatch
from stringline.real_robot.safety.reasons import Mode, Reason


class States:
    """A device process with these recent states."""

    def __init__(self) -> None:
        self.states: list[SimpleNamespace] = []

    def add(self, mode: Mode, reasons: Reason = NO_HOLD) -> None:
        """Adds the state of a cycle."""
        self.states.append(SimpleNamespace(tick=len(self.states), mode=mode, reasons=reasons))

    def recent(self) -> list[SimpleNamespace]:
        """Returns the newest states."""
        return self.states[-5:]


def test_a_hold_is_reported_once_also_if_it_is_over() -> None:
    device = States()
    watch = HoldWatch(cast("DeviceProcess", device))
    device.add(Mode.RUN, Reason.MOTION)
    assert watch.reasons() == Reason(0)
    device.add(Mode.HOLD, Reason.RELEASED)
    device.add(Mode.HOLD, Reason.CAMERA)
    device.add(Mode.RUN)
    assert watch.reasons() == Reason.RELEASED | Reason.CAMERA
    assert watch.reasons() == Reason(0)


def test_a_missing_target_and_a_limited_motion_do_not_count() -> None:
    device = States()
    watch = HoldWatch(cast("DeviceProcess", device))
    device.add(Mode.HOLD, Reason.STARVED)
    device.add(Mode.RUN, Reason.TABLE)
    assert watch.reasons() == Reason(0)
