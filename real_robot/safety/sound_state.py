"""The first stage: nothing is decided on values that are no numbers, or on times that lie ahead.

A comparison with NaN is always false, so a later stage might accept such a value.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.ipc.heartbeat import is_age
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import StageContext, StatelessStage
from stringline.real_robot.safety.stage_cycle import Cycle, Freshness

_OPTIONAL = ("commanded", "gripper_goals")


class StateCheck:
    """Checks that all values of the states of an embodiment are numbers, with a possible time."""

    def __init__(self, embodiment: Embodiment) -> None:
        joints = [joint.name for joint in embodiment.joints]
        grippers = [joint.name for joint in embodiment.joints if joint.kind == "gripper"]
        every = dict.fromkeys(("position", "velocity", "effort", "commanded"), joints)
        self._names = every | {"gripper_goals": grippers}

    def wrong_fields(self, state: ArmState, now: float = np.inf) -> list[str]:
        """Returns the fields that cannot be used at a time; without one, times ahead may be."""
        time_is_sound = is_age(now - state.time) and np.isfinite(state.time)
        found = [] if time_is_sound else ["time"]
        return found + [
            field
            for field, names in self._names.items()
            if not self._is_sound(field, getattr(state, field), len(names))
        ]

    @staticmethod
    def _is_sound(field: str, values: Any, count: int) -> bool:
        right = np.shape(values) == (count,) or (field in _OPTIONAL and np.shape(values) == (0,))
        return right and bool(np.isfinite(values).all())

    def problems(self, state: ArmState, now: float = np.inf) -> list[str]:
        """Returns a phrase for each value that cannot be used: `effort of left/waist nan`."""
        found = []
        for field in self.wrong_fields(state, now):
            values = getattr(state, field)
            names = self._names.get(field, [])
            if field == "time":
                found.append(f"time {state.time}")
            elif np.shape(values) != (len(names),):
                found.append(f"{field} of shape {np.shape(values)}")
            else:
                pairs = zip(names, np.asarray(values).tolist(), strict=True)
                found += [f"{field} of {name} {one}" for name, one in pairs if not np.isfinite(one)]
        return found

    def repaired(self, state: ArmState, before: ArmState, now: float = np.inf) -> ArmState:
        """Returns a state in which the values of a sound one replace those that cannot be used."""
        changes: dict[str, Any] = {}
        for field in self.wrong_fields(state, now):
            values = getattr(state, field)
            kept = getattr(before, field)
            alike = np.shape(values) == np.shape(kept)
            changes[field] = np.where(np.isfinite(values), values, kept) if alike else kept
        if "time" in changes:
            changes["time"] = before.time
        return replace(state, **changes) if changes else state


class SoundState(StatelessStage):
    """A measured value that is no number is a fault, and so is a time or an age that cannot be.

    Later stages get the last sound values in their place, by which the arms brake.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._check = StateCheck(context.embodiment)

    def act(self, cycle: Cycle) -> None:
        """Counts the fields, and the ages of inputs, that cannot be used."""
        wrong = self._check.wrong_fields(cycle.state, cycle.now)
        if wrong:
            cycle.state = self._check.repaired(cycle.state, cycle.before, cycle.now)
        count = len(wrong) + _wrong_ages(cycle.freshness)
        # These two would make arms in motion stand.
        if not is_age(cycle.freshness.suspended_s):
            cycle.freshness = replace(cycle.freshness, suspended_s=0.0)
        if not is_age(cycle.freshness.ahead_s):
            cycle.freshness = replace(cycle.freshness, ahead_s=0.0)
        if count:
            cycle.fault(Reason.BAD_STATE, count)


def _wrong_ages(freshness: Freshness) -> int:
    ages = [getattr(freshness, field.name) for field in fields(freshness)]
    single = [age for age in ages if not isinstance(age, tuple)]
    return sum(not is_age(age) for age in (*single, *freshness.image_ages_s))
