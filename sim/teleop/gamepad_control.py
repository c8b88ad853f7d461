"""Control of a session by a gamepad: one arm at a time follows the sticks."""

from stringline.sim.teleop.gamepad import GamepadCommand
from stringline.sim.teleop.teleop_session import TeleopSession


class GamepadControl:
    """Executes the commands of a gamepad; `arm` follows the sticks."""

    def __init__(self, session: TeleopSession) -> None:
        self._session = session
        self._embodiment = session.world.embodiment
        self.arm = self._embodiment.arms[0]

    def follow(self, command: GamepadCommand) -> None:
        """Executes the command of one control period.

        Raises:
            ValueError: The command is not possible now, such as keeping without a take.
            OSError: A take cannot be written.
        """
        steering = self._session.steering
        if command.pressed & {"left", "other"}:
            self.arm = self._embodiment.arms[0 if "left" in command.pressed else -1]
        if command.linear.any() or command.angular.any():
            steering.push(self.arm, command.linear, command.angular)
        if command.opening:
            limit = self._embodiment.velocity_limits[self._embodiment.grippers[self.arm]]
            speed = limit / self._session.world.contract.control_hz
            steering.grip(self.arm, steering.openings[self.arm] + speed * command.opening)
        if "recall" in command.pressed:
            steering.recall(self.arm)
        self._press(command.pressed)

    def _press(self, pressed: frozenset[str]) -> None:
        session = self._session
        if "take" in pressed:
            (session.keep if session.recorder.open else session.record)()
        if "discard" in pressed:
            session.discard()
        if "reset" in pressed:
            session.reset()
