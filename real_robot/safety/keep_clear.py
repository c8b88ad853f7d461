"""Stages that keep the arms clear of the table, of walls and of each other."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.stage_cycle import Cycle, StageContext, StatelessStage
from stringline.real_robot.safety.surroundings import Surroundings

Vector = NDArray[np.float64]

_ROUNDING_M = 1e-9
_TARGET_ROUNDING_M = 1e-6  # Upper bound of the effect of targets in float32.
# Number of detours along an obstacle that are tried; each gets this multiple of the clearance that
# the one before lacked as additional room.
_DETOURS = 2
_MORE = 2.0
_CORRECTIONS = 1  # Per detour, which is short; the next one makes up for the rest.
# Shares of the way from braking to the requested speed, tried in this order.
_SHARES = np.array([1.0, 0.5, 0.25, 0.0])


class ClearTarget(StatelessStage):
    """Moves a target that lacks clearance to a nearby pose that has it.

    So an arm that is pressed against an obstacle slides along it, instead of stopping with all its
    joints at the contact. Each arm is checked against the present pose of the other one, so no arm
    is moved by the target of the other one. An arm that lacks clearance already need not leave, but
    gets no target that is closer.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._surroundings = Surroundings(context)
        self._embodiment = context.embodiment
        self._own = [context.arm_of_joint == place for place in range(len(context.embodiment.arms))]

    def act(self, cycle: Cycle) -> None:
        """Moves the target of each arm."""
        if cycle.wanted is None:
            return
        here = cycle.limiter.position
        target = cycle.wanted
        wanted = [np.where(own, target, here) for own in self._own]
        now, *spares = self._surroundings.spare(np.stack([here, *wanted]))
        least = np.minimum(now - _TARGET_ROUNDING_M * (now < 0), 0.0)
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


class KeepClear(StatelessStage):
    """Keeps the next pose clear, and all poses after it if the arms brake then.

    So braking is clear in the next cycle as well, for any target; except for the space between two
    arms while no command can be sent to one of them, for an unknown time. Every mixture of two
    allowed speeds is allowed. An arm that lacks clearance already may move, but not closer than
    braking brings it.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._surroundings = Surroundings(context)
        self._embodiment = context.embodiment
        self._arm_of_joint = context.arm_of_joint
        self._own = [self._arm_of_joint == place for place in range(len(context.embodiment.arms))]

    def act(self, cycle: Cycle) -> None:
        """Chooses the clear speed nearest to the requested one. Braking is never refused."""
        if cycle.wanted is None and cycle.retreat is None:
            return
        spare = self._spare(cycle, cycle.speed)
        if (spare >= 0).all():
            cycle.room = float(spare.min())
            return
        least = np.minimum(self._spare(cycle, cycle.braking) - _ROUNDING_M, 0.0)
        if (spare < least).any():
            self._surroundings.note(cycle, least - spare)
            self._slow_down(cycle, spare, least)

    def is_clear(self, cycle: Cycle, speed: Vector) -> bool:
        """Returns whether a speed (J,) is as clear as this stage requires."""
        spare = self._spare(cycle, speed)
        least = np.minimum(self._spare(cycle, cycle.braking) - _ROUNDING_M, 0.0)
        return bool((spare >= least).all())

    def _along(self, cycle: Cycle, spare: Vector, least: Vector) -> tuple[Vector, Vector]:
        """Returns a speed (J,) along the obstacles of arms that lack clearance, and its clearance.

        `spare` (S, A, C) is the clearance at the requested speed, `least` the required one.
        A share of the requested speed would not do: if that brings an arm closer, so does any share
        of it, and the arm would stand still.
        """
        speed = cycle.speed
        braked = cycle.limiter.stopping(cycle.braking, cycle.scale)[-1]
        near = np.any(spare < least, axis=(0, 2))
        moves = speed != cycle.braking
        blocked = [place for place, own in enumerate(self._own) if near[place] and moves[own].any()]
        rests = {place: self._straight(cycle, place, braked) for place in blocked}
        reach = cycle.limiter.rests(cycle.scale)
        room = np.where(least > -_TARGET_ROUNDING_M, 0.0, least)
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
            # Joints come to rest one after the other, so an arm may dip on its way.
            room = room + _MORE * np.maximum(least - spare, 0.0)
        return speed, spare

    def _straight(self, cycle: Cycle, place: int, braked: Vector) -> Vector:
        """Returns the rest pose (J,) of an arm that moves straight to its target; others stay.

        `place` is the index of the arm, `braked` (J,) the rest pose of braking joints.
        Joints that move independently, as in free space, would not do: those that are corrected for
        clearance would drift ever farther from their targets.
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
        """Reduces the speed of arms that lack clearance; if no share has it, all arms brake."""
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
        """Returns the smallest clearance to spare (S, A, C) from the coming period until rest."""
        stopping = cycle.limiter.stopping
        poses = stopping(speed, cycle.scale)
        if np.any(cycle.waits):
            poses = np.concatenate(
                [poses, stopping(np.where(cycle.waits, 0.0, speed), cycle.scale)]
            )
        least: Vector = self._surroundings.spare(poses).min(axis=0)
        return least
