"""The gamepad's part in an operation: one arm at a time follows the sticks, and buttons do what those of the page do."""

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.sim.teleop.gamepad import Wish
from stringline.sim.teleop.teleop_session import Operation


class Hands:
    """Carries out what a gamepad asks for.

    Args:
        operation: What it steers.
        body: Of the arms.

    Attributes:
        arm: The one that follows the sticks.
    """

    def __init__(self, operation: Operation, body: Embodiment) -> None:
        self._operation = operation
        self._body = body
        self.arm = body.arms[0]

    def follow(self, wish: Wish) -> None:
        """Does what is asked for in one control period.

        Raises:
            ValueError: It cannot be done now, such as keeping without a take.
            OSError: A take cannot be written.
        """
        steering = self._operation.steering
        if wish.pressed & {"left", "other"}:
            self.arm = self._body.arms[0 if "left" in wish.pressed else -1]
        if wish.linear.any() or wish.angular.any():
            steering.push(self.arm, wish.linear, wish.angular)
        if wish.opening:
            speed = (
                self._body.velocity_limits[self._body.grippers[self.arm]]
                / self._operation.world.contract.control_hz
            )
            steering.grip(self.arm, steering.openings[self.arm] + speed * wish.opening)
        if "recall" in wish.pressed:
            steering.recall(self.arm)
        self._press(wish.pressed)

    def _press(self, pressed: frozenset[str]) -> None:
        operation = self._operation
        if "take" in pressed:
            (operation.keep if operation.takes.open else operation.record)()
        if "discard" in pressed:
            operation.discard()
        if "reset" in pressed:
            operation.reset()
