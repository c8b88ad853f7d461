"""Guards of the drivers of KUKA arms and their grippers, each with a replacement without effect."""

from typing import Any

from stringline.real_robot.drivers.fri.controller_io import OutputGripper
from stringline.real_robot.drivers.fri.fri_arm import FriArm
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.lcm import wsg
from stringline.real_robot.drivers.lcm.drake_messages import ArmReport, StatusInbox
from stringline.real_robot.drivers.lcm.drake_program import (
    ArrivalClock,
    DrakeProgram,
    LcmArm,
    Settling,
)
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.wsg import SchunkWsg

Guard = tuple[Any, str, Any]  # Owner, name of the attribute, and its replacement.


def _always(value: object) -> property:
    """Returns an attribute that always has this value."""
    return property(lambda _: value, lambda _, __: None)


def _begins_anew(arm: LcmArm) -> bool:
    if not _is_strayed(arm):
        return False
    arm.let_go()
    return True


def _pending(arms: LcmDriver) -> list[DrakeProgram]:
    return [program for program in arms._programs if program.pending]


def _pending_before(arms: LcmDriver) -> list[DrakeProgram]:
    awaiting = _pending(arms)
    arms._collect()
    return awaiting


def _pending_now(arms: LcmDriver) -> list[DrakeProgram]:
    arms._collect()
    return _pending(arms)


def _note_anew(clock: ArrivalClock, utime: int, now_s: float) -> None:
    """Takes each message that is seconds late for one of another clock."""
    if clock._differences and now_s - 1e-6 * utime > clock._differences[-1] + 1.0:
        clock.clear()
    _note(clock, utime, now_s)


_note = ArrivalClock.note
_is_strayed = LcmArm.__dict__["_lost_track"].fget

FRI_GUARDS: dict[str, Guard] = {
    "period of the controller": (FriArm, "keeps_period", True),
    "deadline where the clocking message is missing": (
        FriDriver,
        "_cycle_deadline",
        lambda self, _, now: now + self._timeout_s,
    ),
}
LCM_GUARDS: dict[str, Guard] = {
    "period of the controller": (DrakeProgram, "_keeps_period", True),
    "zeros without a meaning": (ArmReport, "tells_command", True),
    "where commands of an arm with a tracking error go on": (
        LcmArm,
        "_lost_track",
        property(_begins_anew),
    ),
    "time that commands take": (DrakeProgram, "_too_soon", False),
    "commands that come too late": (DrakeProgram, "_too_late", False),
    "messages that waited": (ArrivalClock, "note", _note_anew),
    "commands that come back": (DrakeProgram, "heard", _always(value=True)),
    "commands that its controller lacks": (LcmArm, "lacks_commands", lambda *_: False),
    "commands that are still on their way": (Settling, "step", lambda *_: True),
    "commands that arrive after silence": (DrakeProgram, "_wait_for_arrivals", lambda _: None),
    "clocks that are set": (StatusInbox, "skipped", _always(value=True)),
    "steps without a command": (DrakeProgram, "stands", False),
    "steps made meanwhile": (LcmDriver, "_awaiting", _pending),
    "steps at which arms stood meanwhile": (LcmDriver, "_awaiting", _pending_before),
    "steps that the filter has not seen": (LcmDriver, "_awaiting", _pending_now),
}
GRIPPER_GUARDS: dict[str, Guard] = {
    "neutral valve": (OutputGripper, "_is_neutral", lambda *_: False),
    "driver that was restarted": (SchunkWsg, "_estranged", _always(value=False)),
    "events of the gripper": (SchunkWsg, "_noticed", _always(0)),
    "target that grips at a connection": (SchunkWsg, "_first", _always(None)),
    "silence": (wsg, "_SILENT_TURNS", 1 << 30),
    "others on its channel": (SchunkWsg, "strangers", _always(0)),
}
