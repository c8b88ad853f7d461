"""The operator's side of a supervised run: keys, watchers and leader arms."""

from collections.abc import Callable
from dataclasses import dataclass

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.operator.live_status import print_line
from stringline.real_robot.operator.operator_keys import MESSAGES, Key, Keys


@dataclass(frozen=True)
class Supervision:
    """The operator's side of a run.

    Attributes:
        home_s: Seconds of the motion to the home pose; 0 where arms cannot be moved.
        held_key: Whether the arms move only while `Key.RUN` is held.
        watchers: Receive the device's recent states, oldest first, several times a second and at
            the end of each segment.
        leaders: Leader arms with which a person may take over.
        record_by_hand: Receives the state and the target (J,) of each period in which a person
            leads.
        reconnect_s: Longest time for which a policy that cannot be reached is asked again.
    """

    device: DeviceProcess
    embodiment: Embodiment
    keys: Keys
    home_s: float = 4.0
    held_key: bool = False
    watchers: tuple[Callable[[list[DeviceState]], None], ...] = ()
    leaders: Teleoperation | None = None
    record_by_hand: Callable[[DeviceState, Vector], None] = lambda *_: None
    reconnect_s: float = 60.0

    def active_keys(self) -> tuple[Key, ...]:
        """Returns the keys that end a segment."""
        home = [Key.HOME] if self.home_s else []
        take_over = [Key.TAKE_OVER] if self.leaders else []
        return (Key.HOLD, Key.END, *home, *take_over)

    def describe_keys(self) -> str:
        """Returns a description of all keys."""
        keep = [Key.KEEP] if self.device.incidents is not None else []
        run = [Key.RUN] if self.held_key else []
        keys = (*run, *self.active_keys(), Key.RESET, *keep)
        return "; ".join(MESSAGES[key] for key in keys)

    def report_keys(self, *, available: bool) -> None:
        """Prints a description of all keys, or that they need a terminal."""
        print_line(
            f"{self.describe_keys()}."
            if available
            else "Operator keys need a terminal; Ctrl-C makes the arms hold."
        )
