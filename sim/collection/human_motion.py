"""Motion of an expert as that of a person by teleoperation: its targets pass through a hand.

The hand pauses between motions, trembles, goes beyond its targets and comes back, takes a shape in
flight, and grasps a second time in place. What the hand does is recorded as the action, as a
recorder of teleoperation does.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.sim.experts.expert_registry import Expert
from stringline.sim.experts.motion import GRIPPER_SPEED
from stringline.sim.rollout.world_interface import World

PAUSES = 0.3  # Share of the stops after which the hand pauses.
PAUSE_S = (0.2, 0.8)
STILL_RAD = 1e-5  # Largest change of a target at rest in a control period.
SECOND_GRASPS = 0.25  # Share of the closings after which the gripper opens and closes once more.
SECOND_GRASP_S = 0.5  # Time of each of the two strokes.
STROKE = 0.2  # Smallest change of an opening that counts as a closing.
SHAPES = (0.0, 0.4)  # Range of the share by which an open gripper is narrower in flight.
SHAPED_AT = 0.5  # Speed of the fastest joint at which it has that shape, rad/s.
# Tremor of hands and arms has its energy from 4 to 12 Hz (Elble and Koller 1990); at 50 actions
# per second the upper end would be two samples of a period.
TREMOR_HZ = (4.0, 10.0)
TREMOR_M = 0.003  # Standard deviation of the length of the displacement.
WAVES = 6
# Second-order response of the hand to its targets at 50 Hz: 0.13 s behind them, 8 % beyond a step.
NATURAL_RAD_S = 8.0
DAMPING = 0.6
DIFFERENCE_RAD = 1e-4  # Step of the numerical Jacobian.


@dataclass(frozen=True)
class Tremor:
    """Displacements of the grippers by trembling, a sum of sines.

    Attributes:
        hz: (W, N, 3), frequencies of W waves for N arms along x, y, z.
        phase: (W, N, 3), rad.
    """

    hz: Vector
    phase: Vector

    @classmethod
    def drawn(cls, rng: np.random.Generator, arms: int) -> "Tremor":
        """Draws frequencies and phases."""
        shape = (WAVES, arms, 3)
        return cls(rng.uniform(*TREMOR_HZ, shape), rng.uniform(0, 2 * np.pi, shape))

    def at(self, seconds: float) -> Vector:
        """Returns the displacement (N, 3) of each gripper, metres."""
        waves = np.sin(2 * np.pi * self.hz * seconds + self.phase).sum(axis=0)
        # A sum of W sines has the variance W / 2, in each of three directions.
        return np.asarray(waves * TREMOR_M / np.sqrt(3 * WAVES / 2))


class HumanMotion:
    """An expert whose targets are carried out by a hand.

    While the hand pauses or grasps again, the expert waits; it reads the true state again after
    that, as always.

    Args:
        expert: The expert.
    """

    def __init__(self, expert: Expert[Any]) -> None:
        self._expert = expert

    def reset(self, env: World, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` is of the expert and of the hand."""
        self._expert.reset(env, rng)
        self._rng = np.random.default_rng(rng.integers(2**63))
        self._body = env.embodiment
        self._hand = Hand(self._body, self._rng, env.contract.control_hz)
        self._target = env.start.copy()
        self._before = env.start.copy()
        self._waiting: list[Vector] = []
        self._moving = False

    def act(self, env: World) -> Vector:
        """Returns the next joint targets (J,) of the hand.

        Raises:
            OutOfReachError: A pose on the expert's way is out of reach.
        """
        if self._waiting:
            return self._hand.follow(self._waiting.pop())
        target = self._expert.act(env)
        self._wait_after(target)
        self._target = target.copy()
        return self._hand.follow(target)

    def _wait_after(self, target: Vector) -> None:
        """Draws what the hand does at rest after a motion, or after the closing of a gripper."""
        revolute = [joint.kind == "revolute" for joint in self._body.joints]
        moving = bool(np.abs(target - self._target)[revolute].max() > STILL_RAD)
        if self._moving and not moving and self._rng.uniform() < PAUSES:
            self._waiting = [target] * self._periods(self._rng.uniform(*PAUSE_S))
        self._moving = moving
        for place in self._body.grippers.values():
            step = target[place] - self._target[place]
            closed_by = self._before[place] - target[place]
            if step == 0.0 and closed_by > STROKE and self._rng.uniform() < SECOND_GRASPS:
                opened = target.copy()
                opened[place] = self._before[place]
                count = self._periods(SECOND_GRASP_S)
                self._waiting = [target] * count + [opened] * count
            if step >= 0.0:  # The next closing begins here.
                self._before[place] = target[place]

    def _periods(self, seconds: float) -> int:
        return round(seconds / self._hand.period_s)


class Hand:
    """Follows joint targets with delay, overshoot, tremor, and an opening that depends on speed.

    Args:
        body: The embodiment.
        rng: Source of randomness.
        control_hz: Targets per second.
    """

    def __init__(self, body: Embodiment, rng: np.random.Generator, control_hz: float) -> None:
        self.period_s = 1.0 / control_hz
        self._body = body
        self._tremor = Tremor.drawn(rng, len(body.arms))
        self._narrower = rng.uniform(*SHAPES)
        self._q: Vector | None = None
        self._speed = np.zeros(len(body.joints))
        self._openings = body.home.copy()
        self._step = 0

    def follow(self, target: Vector) -> Vector:
        """Returns the joints (J,) of the hand, a control period later, on the way to a target."""
        if self._q is None:
            self._q = target.copy()
            self._openings = target.copy()
        change = NATURAL_RAD_S**2 * (target - self._q) - 2 * DAMPING * NATURAL_RAD_S * self._speed
        self._speed = self._speed + change * self.period_s
        self._q = self._q + self._speed * self.period_s
        self._step += 1
        found = self._trembling(self._q)
        for arm, place in self._body.grippers.items():
            fastest = np.abs(self._speed[self._body.revolute_joints[arm]]).max()
            shaped = self._narrower * min(fastest / SHAPED_AT, 1.0)
            opened = np.clip((target[place] - 0.3) / 0.4, 0.0, 1.0)  # 0: it may hold something.
            wanted = target[place] * (1.0 - opened * shaped)
            most = GRIPPER_SPEED * self.period_s
            self._openings[place] += np.clip(wanted - self._openings[place], -most, most)
            found[place] = self._openings[place]
        return np.clip(found, self._body.lower, self._body.upper)

    def _trembling(self, q: Vector) -> Vector:
        """Returns joints (J,) whose grippers are displaced by the tremor."""
        displaced = q.copy()
        moved = self._tremor.at(self._step * self.period_s)
        for arm, shift in zip(self._body.arms, moved, strict=True):
            joints = self._body.revolute_joints[arm]
            probes = np.tile(q, (len(joints) + 1, 1))
            probes[1:, joints] += DIFFERENCE_RAD * np.eye(len(joints))
            place = self._body.forward_kinematics(probes)[arm][:, :3, 3]
            jacobian = (place[1:] - place[0]).T / DIFFERENCE_RAD
            displaced[joints] += np.linalg.lstsq(jacobian, shift, rcond=0.05)[0]
        return displaced
