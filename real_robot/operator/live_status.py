"""Reports of a deployment to its operator: a status line while it runs, and counts at its end."""

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tqdm import tqdm

from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.operator.operator_keys import Key, Keys
from stringline.real_robot.safety.reasons import MESSAGES, FollowingError, Mode, Reason

USUAL_DEG = 3.0  # The shipped policy has 1.4 on emulated arms.
FOLLOWS_CLOSELY = (
    "This is usual: targets change in steps at each control period, and the filter follows them "
    "smoothly."
)
LAGS = (
    f"Above {USUAL_DEG:.0f} degrees, the policy is slowed down so much that it may fail. Raise "
    "speed_share (robot.limits, of real arms the limits file) if the arms permit it, or train on "
    "slower demonstrations (docs/robots.md)."
)


_COLOURS = {Mode.RUN: "green", Mode.HOLD: "yellow", Mode.FAULT: "red"}


class LiveStatus:
    """A status line in the terminal: green while the arms move, yellow in a hold, red in a fault.

    Args:
        also: Receives every state that is shown.

    Attributes:
        shown_s: Time of the newest state, seconds.
    """

    def __init__(
        self, seconds: float, also: Callable[[DeviceState], None] = lambda _: None
    ) -> None:
        self._seconds = seconds
        self._also = also
        self.shown_s = 0.0
        self._mode: Mode | None = None
        self._session = -1
        self._begun = 0
        self._bar = tqdm(
            total=seconds,
            unit="s",
            bar_format="{desc:<34}|{bar}| {n:.1f} of {total:.1f} s",
            leave=False,
        )

    def __enter__(self) -> "LiveStatus":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, state: DeviceState, seconds: float) -> None:
        """Shows the newest state."""
        mode = Mode(state.mode)
        self.shown_s = seconds
        if self._bar.fp.isatty():
            self._bar.colour = _COLOURS[mode]
        acting = [reason.name or "" for reason in Reason if reason & state.reasons]
        if share := self._unsent_share(state):
            acting.insert(0, f"{share:.0%} unsent")
        self._bar.set_description_str(f"{mode.name} {' '.join(acting)}"[:34], refresh=False)
        self._bar.n = min(seconds, self._seconds)
        if mode is self._mode:
            self._bar.update(0)  # At most ten times a second.
        else:
            self._bar.refresh()
        self._mode = mode
        self._also(state)

    def _unsent_share(self, state: DeviceState) -> float:
        """Returns the share of the cycles of this episode in which a command was not sent."""
        if state.session != self._session:
            self._session = state.session
            self._begun = state.tick - 1
        return state.counts.get(Reason.UNSENT, 0) / max(state.tick - self._begun, 1)


def print_line(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def report_counts(counts: Mapping[Reason, int], cycles: int, following: FollowingError) -> None:
    """Prints in how many cycles each reason of the safety filter acted, and by how much."""
    acted = {reason: count for reason, count in counts.items() if count}
    print_line(
        f"The safety filter acted in these of {cycles} cycles:"
        if acted
        else f"The safety filter passed all {cycles} cycles."
    )
    for reason, count in acted.items():
        share = f" ({count / max(cycles, 1):.1%} of the cycles)" if reason is Reason.UNSENT else ""
        print_line(f"  {count:>6}  {MESSAGES[reason]}{share}")
    if motion := acted.get(Reason.MOTION):
        print_line(describe_following(following, motion))


def describe_following(following: FollowingError, cycles: int) -> str:
    """Returns how far commands were behind targets, and whether this is usual.

    `cycles` is the number of cycles in which `Reason.MOTION` acted.
    """
    mean, largest = np.degrees((following.total_rad / cycles, following.largest_rad))
    usual = mean <= USUAL_DEG
    return (
        f"In the cycles with targets that were too fast, the commands were {mean:.1f} degrees "
        f"behind on average, {largest:.1f} at most. {FOLLOWS_CLOSELY if usual else LAGS}"
    )


def report_fault(fault: Sequence[str]) -> None:
    """Prints the reasons of a fault, and rings the bell of the terminal."""
    if fault and sys.stdout.isatty():
        sys.stdout.write("\a")
    for sentence in fault:
        print_line(
            f"FAULT: {sentence} The arms hold until an operator has removed the cause and resets "
            "the fault."
        )


def reset_by_operator(fault: Sequence[str], keys: Keys) -> bool:
    """Reports a fault and returns whether the operator resets it after that."""
    report_fault(fault)
    return keys.wait_anew(Key.RESET, Key.END) is Key.RESET


def report_outcome(success: bool, stage: str, seconds: float) -> None:
    """Prints the outcome of a task."""
    mark = "Success" if success else "No success"
    print_line(f"{mark} after {seconds:.1f} s; furthest stage: {stage}.")
