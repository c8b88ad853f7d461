"""How a deployment goes, in words: a line while it runs, and what was counted when it is over."""

import sys
from collections.abc import Callable, Mapping, Sequence

from tqdm import tqdm

from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.safety.reasons import IN_WORDS, Mode, Reason


class LiveStatus:
    """A line that says how it goes.

    Args:
        seconds: How long it may take.
        also: Gets every state that is shown.
    """

    def __init__(
        self, seconds: float, also: Callable[[DeviceState], None] = lambda _: None
    ) -> None:
        self._seconds = seconds
        self._also = also
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
        acting = [reason.name or "" for reason in Reason if reason & state.reasons]
        self._bar.set_description_str(
            f"{Mode(state.mode).name} {' '.join(acting)}"[:34], refresh=False
        )
        self._bar.n = min(seconds, self._seconds)
        self._bar.update(0)
        self._also(state)


def say(line: str) -> None:
    """Shows a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_counts(counts: Mapping[Reason, int], cycles: int) -> None:
    """Says in how many cycles the safety filter did what."""
    acted = {reason: count for reason, count in counts.items() if count}
    say(
        f"The safety filter acted in these of {cycles} cycles:"
        if acted
        else f"The safety filter passed all {cycles} cycles."
    )
    for reason, count in acted.items():
        say(f"  {count:>6}  {IN_WORDS[reason]}")


def say_fault(fault: Sequence[str]) -> None:
    """Says why the arms were stopped, if they were."""
    for sentence in fault:
        say(f"FAULT: {sentence} The arms hold; nothing goes on before somebody has looked.")


def say_outcome(success: bool, stage: str, seconds: float) -> None:
    """Says what became of the task."""
    say(f"{'Success' if success else 'No success'} after {seconds:.1f} s; furthest stage: {stage}.")
