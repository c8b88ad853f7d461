"""One cycle of the safety filter as its stages see it, change it and pass it on."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.safety.limiter import MotionLimiter
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason

Vector = NDArray[np.float64]
NONE = Reason(0)


@dataclass(frozen=True)
class Signs:
    """How long ago others gave a sign of life, seconds; 0 of those who never promised any.

    Attributes:
        action_age_s: For how long the last action of the plan in force has been past.
        supervisor_age_s: Since the last heartbeat of whoever started the device process.
        image_ages_s: Since the newest image of each camera was taken.
        plan_age_s: Since the observation was made that the plan in force answers.
    """

    action_age_s: float = 0.0
    supervisor_age_s: float = 0.0
    image_ages_s: tuple[float, ...] = ()
    plan_age_s: float = 0.0


class Retreat(NamedTuple):
    """Where arms that hold go back to, so that they let go of what they work against.

    Attributes:
        joints: (J,) bool, those that go; the others brake.
        pose: (J,) where to.
    """

    joints: NDArray[np.bool_]
    pose: Vector


@dataclass(frozen=True, eq=False)
class Setting:
    """What stages are built for.

    Attributes:
        embodiment: The body.
        limits: What it is held to.
        period_s: Time between two commands.
    """

    embodiment: Embodiment
    limits: SafetyLimits
    period_s: float


@dataclass(eq=False)
class Cycle:
    """What is known in a cycle, and what its stages have made of it so far. Vectors are (J,).

    Attributes:
        target: Wanted, or None when nothing is due. Stages move it inside limits.
        state: Measured.
        now: Time of this cycle, seconds.
        elapsed_s: Since the arms were armed.
        signs: Of life.
        rejected: Bad chunks in a row.
        limiter: Knows the last command and its speed; only the filter moves it on.
        scale: Share of velocity and acceleration in force.
        braking: Speed of the coming period if the arms were to hold.
        speed: Speed of the coming period.
        amounts: What acted, and by how much, in the unit of each reason.
        faults: What demands an operator.
        held: Whether the arms are to hold.
        waits: (J,) joints to which nothing can be sent in this cycle, or none.
        retreat: Where the arms go back to while they hold; None: they brake.
    """

    target: Vector | None
    state: ArmState
    now: float
    elapsed_s: float
    signs: Signs
    rejected: int
    limiter: MotionLimiter
    braking: Vector
    speed: Vector
    scale: float = 1.0
    amounts: dict[Reason, float] = field(default_factory=dict)
    faults: Reason = NONE
    held: bool = False
    waits: NDArray[np.bool_] | bool = False
    retreat: Retreat | None = None

    @property
    def wanted(self) -> Vector | None:
        """The target, unless the arms are to hold."""
        return None if self.held or self.faults else self.target

    def note(self, reason: Reason, amount: float = 1.0) -> None:
        """Says that a reason acted, and by how much."""
        self.amounts[reason] = max(amount, self.amounts.get(reason, 0.0))

    def hold(self, reason: Reason, amount: float = 1.0) -> None:
        """Makes the arms hold for that reason."""
        self.note(reason, amount)
        self.held = True

    def fault(self, reason: Reason, amount: float = 1.0) -> None:
        """Makes the arms hold for that reason until an operator resets it."""
        self.note(reason, amount)
        self.faults |= reason


class Stage(Protocol):
    """One idea of what is safe."""

    def __init__(self, setting: Setting) -> None: ...

    def start(self) -> None:
        """Forgets the episode before."""
        ...

    def act(self, cycle: Cycle) -> None:
        """Does its part."""
        ...


class SettledStage:
    """A stage that remembers nothing from cycle to cycle."""

    def __init__(self, setting: Setting) -> None:
        self.limits = setting.limits
        self.period_s = setting.period_s

    def start(self) -> None:
        """Has nothing to forget."""
