"""Stages that keep arms off the table, off walls and off each other."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.stage_cycle import Cycle, Setting
from stringline.real_robot.safety.surroundings import Surroundings

Vector = NDArray[np.float64]

_ROUNDING_M = 1e-9
_TOLD_M = (
    1e-6  # What targets may be rounded by, float32 of joints, makes a difference of less than that.
)
# Ways along something are tried so often, each with so many times what the one before lacked as
# more room.
_DETOURS = 2
_MORE = 2.0
_CORRECTIONS = 1  # Of a way, which is short; what it leaves is lacking in the next.
# Shares of the way from braking to what is wanted, tried in this order when an arm gets too near to
# something.
_SHARES = np.array([1.0, 0.5, 0.25, 0.0])


class ClearTarget:
    """A target in which an arm would be too near to something is moved to a pose near by in which it is not.

    So an arm that is pressed against something slides along it and comes to rest where it is held
    up, instead of stopping with all its joints where it gets there. Each arm is looked at where the
    other one is now, so no arm is moved by what another one is told. What is too near already need
    not leave, but is not told to come nearer.
    """

    def __init__(self, setting: Setting) -> None:
        self._surroundings = Surroundings(setting)
        self._embodiment = setting.embodiment
        self._own = [
            np.array([joint.arm == arm for joint in setting.embodiment.joints])
            for arm in setting.embodiment.arms
        ]

    def start(self) -> None:
        """Has nothing to forget."""

    def act(self, cycle: Cycle) -> None:
        """Moves the target."""
        if cycle.wanted is None:
            return
        here = cycle.limiter.position
        target = cycle.wanted
        wanted = [np.where(own, target, here) for own in self._own]
        now, *spares = self._surroundings.spare(np.stack([here, *wanted]))
        least = np.minimum(now - _TOLD_M * (now < 0), 0.0)
        for place, (arm, own, spare) in enumerate(
            zip(self._embodiment.arms, self._own, spares, strict=True)
        ):
            short = np.zeros_like(least)
            short[:, place] = least[:, place] - spare[:, place]
            if (short > 0).any():
                self._surroundings.note(cycle, short)
                target = np.where(
                    own, self._surroundings.pushed_out(wanted[place], arm, least[:, place]), target
                )
        cycle.target = target


class KeepClear:
    """The next pose, and all poses after it if the arms were to brake then, are clear of everything.

    So they are in the cycle after it, whatever is wanted, because braking remains; but for
    micrometres while limits grow in the soft start, and for what two arms have in common while one
    of them cannot be sent a command, as nobody knows for how long. Every mixture of two allowed
    speeds is allowed. What is too near already may move, but not nearer than braking brings it.
    """

    def __init__(self, setting: Setting) -> None:
        self._surroundings = Surroundings(setting)
        self._embodiment = setting.embodiment
        self._arm_of_joint = np.array(
            [setting.embodiment.arms.index(joint.arm) for joint in setting.embodiment.joints]
        )
        self._own = [self._arm_of_joint == place for place in range(len(setting.embodiment.arms))]

    def start(self) -> None:
        """Has nothing to forget."""

    def act(self, cycle: Cycle) -> None:
        """Chooses the speed nearest to the wanted one that keeps clear; who brakes does so, whatever is in the way."""
        if cycle.wanted is None and cycle.retreat is None:
            return
        spare = self._spare(cycle, cycle.speed)
        if (spare >= 0).all():
            return
        least = np.minimum(self._spare(cycle, cycle.braking) - _ROUNDING_M, 0.0)
        if (spare < least).any():
            self._surroundings.note(cycle, least - spare)
            self._slow_down(cycle, spare, least)

    def _along(self, cycle: Cycle, spare: Vector, least: Vector) -> tuple[Vector, Vector]:
        """Returns a speed (J,) with which arms that come nearer than that move along what they are near to, and what is spare.

        A share of the wanted speed would not do: where all of it takes an arm nearer any share
        does, so that it stands for as long as that is wanted.

        Args:
            cycle: With the wanted speed.
            spare: (S, A, C) at that speed.
            least: (S, A, C) of what may be spare.
        """
        speed = cycle.speed
        braked = cycle.limiter.stopping(cycle.braking, cycle.scale)[-1]
        near = np.any(spare < least, axis=(0, 2))
        moves = speed != cycle.braking
        blocked = [place for place, own in enumerate(self._own) if near[place] and moves[own].any()]
        rests = {place: self._straight(cycle, place, braked) for place in blocked}
        reach = cycle.limiter.rests(cycle.scale)
        room = np.where(least > -_TOLD_M, 0.0, least)
        for _ in range(_DETOURS):
            for place, rest in rests.items():
                arm = self._embodiment.arms[place]
                own = self._own[place]
                rests[place] = self._surroundings.pushed_out(
                    rest, arm, room[:, place], reach, corrections=_CORRECTIONS
                )
                speed = np.where(own, cycle.limiter.settle(rests[place], cycle.scale), speed)
            spare = self._spare(cycle, speed)
            if (spare >= least).all():
                break
            # Joints come to rest one after the other, so an arm may dip on its way there.
            room = room + _MORE * np.maximum(least - spare, 0.0)
        return speed, spare

    def _straight(self, cycle: Cycle, place: int, braked: Vector) -> Vector:
        """Returns where an arm comes to rest (J,) that goes straight to its target, while the other one stays where it is now.

        Each hinge as fast as it may, as in the open, would not do here: those that are corrected to
        give the arm room would be taken ever farther from their targets.

        Args:
            cycle: With the wanted speed.
            place: Of the arm.
            braked: (J,) where joints come to rest that brake.
        """
        limiter = cycle.limiter
        hinges = self._embodiment.hinges[self._embodiment.arms[place]]
        target = cycle.wanted
        if target is None:
            assert cycle.retreat is not None
            target = np.where(cycle.retreat.joints, cycle.retreat.pose, braked)
        rest = np.where(
            self._own[place], limiter.stopping(cycle.speed, cycle.scale)[-1], limiter.position
        )
        rest[hinges] = limiter.rest_towards(target, hinges, cycle.scale)
        return rest

    def _slow_down(self, cycle: Cycle, spare: Vector, least: Vector) -> None:
        """Gives arms that come nearer than that a share of their speed, and lets all brake if none will do.

        Args:
            cycle: With the wanted speed.
            spare: (S, A, C) at that speed.
            least: (S, A, C) of what may be spare.
        """
        wanted, spare = self._along(cycle, spare, least)
        cycle.speed = wanted
        level = np.zeros(least.shape[1], dtype=np.int64)
        while (near := np.any(spare < least, axis=(0, 2))).any():
            if (level[near] == len(_SHARES) - 1).all():
                cycle.speed = cycle.braking
                return
            level[near] = np.minimum(level[near] + 1, len(_SHARES) - 1)
            share = _SHARES[level][self._arm_of_joint]
            cycle.speed = cycle.braking + share * (wanted - cycle.braking)
            spare = self._spare(cycle, cycle.speed)

    def _spare(self, cycle: Cycle, speed: Vector) -> Vector:
        """Returns how much nearer (S, A, C) each capsule may come, in the worst period from the coming one to the rest."""
        stopping = cycle.limiter.stopping
        poses = stopping(speed, cycle.scale)
        if np.any(cycle.waits):
            poses = np.concatenate(
                [poses, stopping(np.where(cycle.waits, 0.0, speed), cycle.scale)]
            )
        least: Vector = self._surroundings.spare(poses).min(axis=0)
        return least
