"""Two arms at work at the same time, each with a script of its own, and what they tell each other."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.sim.experts.skills import Skills

PATIENCE = 0.1  # Seconds; how often an arm that waits looks whether the way is free.


def together(
    embodiment: Embodiment, start: Vector, scripts: Mapping[str, Iterator[Vector]]
) -> Iterator[Vector]:
    """Yields joint targets (J,) that follow the script of each arm; an arm whose script has ended stays.

    Args:
        embodiment: The body.
        start: (J,), targets of arms without a script.
        scripts: By arm; of what a script yields only its own arm's joints count.
    """
    q = start.copy()
    running = dict(scripts)
    while True:
        for arm in list(running):
            targets = next(running[arm], None)
            if targets is None:
                del running[arm]
            else:
                own = [*embodiment.hinges[arm], embodiment.grippers[arm]]
                q[own] = targets[own]
        if not running:
            return
        yield q.copy()


@dataclass
class Teamwork:
    """What the arms of one episode share.

    Attributes:
        middle: The arm that works in the middle of the table now; the other one waits.
        taken: What each arm is after now, by name.
        tries: How often each thing was tried, by name.
        refused: Arm and thing where it was out of reach.
        reserved: Where each arm is going to let go, (2,) in metres.
    """

    middle: str | None = None
    taken: dict[str, str] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    refused: set[tuple[str, str]] = field(default_factory=set)
    reserved: dict[str, Vector] = field(default_factory=dict)

    def leave(self, arm: str) -> None:
        """Ends an arm's work on what it was after, and gives the middle back if the arm has it."""
        self.taken.pop(arm, None)
        self.reserved.pop(arm, None)
        if self.middle == arm:
            self.middle = None


@dataclass(frozen=True)
class Member:
    """One arm of the team.

    Attributes:
        arm: Its name.
        skills: What it can do; the joints of the other arm do not count in them.
        team: What it shares with the other arm.
    """

    arm: str
    skills: Skills
    team: Teamwork

    @property
    def avoided(self) -> list[Vector]:
        """What the other arm has reserved, (2,) in metres each."""
        return [spot for other, spot in self.team.reserved.items() if other != self.arm]

    def enter_middle(self) -> Iterator[Vector]:
        """Waits until the middle is free, and takes it."""
        while self.team.middle not in (None, self.arm):
            yield from self.skills.motion.hold(PATIENCE)
        self.team.middle = self.arm
