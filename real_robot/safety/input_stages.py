"""Stages that check the inputs by which a person or a cell permits motion."""

from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import StatelessStage
from stringline.real_robot.safety.stage_cycle import Cycle


class StopLineClosed(StatelessStage):
    """An external stop is a fault, and so is the loss of its line."""

    def act(self, cycle: Cycle) -> None:
        """Compares the time since the line last permitted motion with its limit."""
        if not cycle.freshness.stop_line_age_s <= self.limits.oldest_stop_line_s:
            cycle.fault(Reason.EXTERNAL_STOP, cycle.freshness.stop_line_age_s)


class HeldToRun(StatelessStage):
    """The arms hold while nobody holds the key, pedal or input of hold-to-run."""

    def act(self, cycle: Cycle) -> None:
        """Compares the time since the last permission with its limit."""
        if not cycle.freshness.permission_age_s <= self.limits.oldest_permission_s:
            cycle.hold(Reason.RELEASED, cycle.freshness.permission_age_s)
