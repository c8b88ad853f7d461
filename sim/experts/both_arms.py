"""Two arms that work at the same time, each by a script of its own, and their shared state."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.sim.experts.skills import Skills

PATIENCE = 0.1  # Seconds between two checks of an arm that waits.


def together(
    embodiment: Embodiment, start: Vector, scripts: Mapping[str, Iterator[Vector]]
) -> Iterator[Vector]:
    """Yields joint targets (J,) that follow the script of each arm.

    A script controls the joints of its arm, which rest after its end. Arms without a script stay at
    `start` (J,).
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
    """The shared state of the arms in one episode.

    Attributes:
        middle: The arm that works in the middle of the table; the other one waits.
        taken: Name of each arm's current object.
        tries: Number of attempts by the object's name.
        refused: Pairs of an arm and an object out of its reach.
        reserved: Place of each arm's next drop, (2,) in metres.
        settled: Arms that have been in their usual joints; from others less may be in reach.
    """

    middle: str | None = None
    taken: dict[str, str] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    refused: set[tuple[str, str]] = field(default_factory=set)
    reserved: dict[str, Vector] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def leave(self, arm: str) -> None:
        """Ends an arm's work on its object, and frees the middle if the arm has it."""
        self.taken.pop(arm, None)
        self.reserved.pop(arm, None)
        if self.middle == arm:
            self.middle = None


@dataclass(frozen=True)
class Member:
    """One arm of the team; its skills ignore the joints of the other arm."""

    arm: str
    skills: Skills
    team: Teamwork

    @property
    def avoided(self) -> list[Vector]:
        """Places (2,), metres, that the other arm has reserved."""
        return [spot for other, spot in self.team.reserved.items() if other != self.arm]

    def enter_middle(self) -> Iterator[Vector]:
        """Waits until the middle is free, and takes it."""
        while self.team.middle not in (None, self.arm):
            yield from self.skills.motion.hold(PATIENCE)
        self.team.middle = self.arm
