"""A gripper that is told nothing, so that it goes on holding what it holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from stringline.real_robot.driver_interface.gripper import Gripper, GripperSettings


@dataclass(frozen=True)
class StillGripper:
    """A gripper that is only read, beside an arm that moves.

    Attributes:
        settings: Of the gripper.
    """

    settings: GripperSettings

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> Gripper:
        """Returns the gripper of an arm; nothing leaves it."""
        return self.settings.gripper(arm, period_s=period_s, read_only=True)


def stilled(
    grippers: Mapping[str, GripperSettings], *, still: bool
) -> Mapping[str, GripperSettings]:
    """Returns grippers by arm as they are, or told nothing.

    Args:
        grippers: By arm.
        still: Whether they are told nothing.
    """
    return {arm: StillGripper(one) for arm, one in grippers.items()} if still else grippers
