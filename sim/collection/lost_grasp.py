"""A gripper that opens during a grasp, a disturbance from which experts recover."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.environment.environment import TaskEnvironment

# Range of the time from the first contact of both pads until the gripper opens. Early openings are
# missed grasps: the object has not left the table yet.
HELD_S = (0.1, 1.2)
OPEN_S = 0.4
SHARES = Range(least=0, most=1)


@dataclass(frozen=True)
class Opening:
    """The opening of a gripper against its command.

    Attributes:
        arm: The arm.
        begin_s: Time of the episode, seconds.
        seconds: Its duration.
    """

    arm: str
    begin_s: float
    seconds: float = OPEN_S


class LostGrasp:
    """Opens a gripper that holds an object, once in a share of the episodes.

    Args:
        share: Share of the episodes, 0 to 1.
        rng: Source of randomness, which decides whether and when the gripper opens.
    """

    def __init__(self, share: float, rng: np.random.Generator) -> None:
        SHARES.check(lost_grasps=share)
        self._waits = bool(rng.uniform() < share)
        self._held_s = float(rng.uniform(*HELD_S))
        self._opening: Opening | None = None

    def disturbed(self, env: TaskEnvironment, action: Vector) -> Vector:
        """Returns the action (J,) to execute instead of the expert's."""
        if self._waits:
            self._wait(env)
        opening = self._opening
        if opening is None or env.time >= opening.begin_s + opening.seconds - 1e-9:
            return action
        changed = action.copy()
        changed[env.embodiment.grippers[opening.arm]] = 1.0
        return changed

    def describe(self) -> dict[str, Any] | None:
        """Returns arm, time and duration as plain data; None if no gripper has opened."""
        return None if self._opening is None else asdict(self._opening)

    def _wait(self, env: TaskEnvironment) -> None:
        contacts = env.task.contact_state(env.physics)
        holding = [
            arm
            for arm in env.embodiment.arms
            if any(contacts.held(arm, name) for name in env.task.props)
        ]
        if holding:
            self._held_s -= 1.0 / env.contract.control_hz
        if holding and self._held_s <= 0:
            self._waits = False
            self._opening = Opening(holding[0], env.time)
