"""Open and close commands that recorded openings follow.

People and experts command openings: an approaching gripper is a little wider than the object, a
closed one a little narrower. The command behind them is found from a whole episode, since a single
opening does not tell: 0.64 closes on an object of 90 mm and is wide open around one of 25 mm.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Contract

STROKE = 0.1
"""Smallest change of an opening that is a motion and no noise."""
REST_S = 0.1
REST = 0.01
"""A gripper rests while its opening falls by less than `REST` in `REST_S` seconds."""

Openings = NDArray[np.float64]


def gripper_places(contract: Contract) -> list[int]:
    """Returns the places of absolute gripper openings in the actions of a contract."""
    return [
        place
        for place, entry in enumerate(contract.action)
        if (entry.kind, entry.mode, entry.unit) == ("gripper", "absolute", "opening")
    ]


def check_openings(contract: Contract, purpose: str, *, otherwise: str) -> list[int]:
    """Returns the places of absolute gripper openings in the actions of a contract.

    Args:
        contract: The contract.
        purpose: What needs openings, as the subject of the message.
        otherwise: The option that works without openings.

    Raises:
        ValueError: The actions lack an absolute opening.
    """
    places = gripper_places(contract)
    if not places:
        got = ", ".join(f"{one.name} ({one.mode}, {one.unit})" for one in contract.action)
        raise ValueError(
            f"{purpose} need an absolute opening in the actions of {contract.embodiment!r}; got "
            f"{got}; allowed: grippers with kind gripper, mode absolute and unit opening, or "
            f"{otherwise}."
        )
    return places


def with_commands(action: Array, contract: Contract) -> Array:
    """Returns the actions (T, A) of an episode with commands, 0 or 1, for their openings."""
    result = np.array(action)
    for place in gripper_places(contract):
        result[:, place] = is_open(result[:, place].astype(np.float64), contract.control_hz)
    return result


def is_open(opening: Openings, control_hz: float) -> NDArray[np.bool_]:
    """Returns whether a gripper is commanded to open or to close, for each step of an episode.

    Strokes are falls and rises by at least `STROKE` between turning points. The gripper closes from
    the last rest within a fall: a fall with a rest first makes the gripper narrower for an object.
    It opens from the beginning of a rise. Before the first stroke the command is the opposite of
    the first one; without any stroke a gripper is open at an opening of 0.5 and above.

    Args:
        opening: Commanded openings (T,).
        control_hz: Actions per second.
    """
    turns = turning_points(opening)
    if len(turns) < 2:
        return np.full(len(opening), bool(len(opening)) and opening[0] >= 0.5)
    result = np.full(len(opening), opening[turns[0]] > opening[turns[1]])
    for first, last in pairwise(turns):
        if opening[last] > opening[first]:
            result[_rise(opening, first, last) :] = True
        else:
            result[_fall(opening, first, last, max(1, round(REST_S * control_hz))) :] = False
    return result


def turning_points(opening: Openings, stroke: float = STROKE) -> list[int]:
    """Returns the steps at which openings (T,) turn, with hysteresis.

    Between two of them the opening changes by at least `stroke`. First and last are the highest and
    lowest openings before the first and after the last change. Without such a change there is none.
    """
    found: list[int] = []
    extreme = {1: 0, -1: 0}  # Steps of the highest and the lowest opening since the last turn.
    direction = 0
    for step, value in enumerate(opening):
        for sign in (1, -1):
            if sign * (value - opening[extreme[sign]]) > 0:
                extreme[sign] = step
        for sign in (1, -1):
            turned = sign * (value - opening[extreme[-sign]]) >= stroke
            if direction != sign and turned:
                found.append(extreme[-sign])
                direction = sign
                extreme[sign] = step
    return [*found, extreme[direction]] if found else []


def _rise(opening: Openings, first: int, last: int) -> int:
    """Returns the step at which a rise begins."""
    near = opening[first : last + 1] <= opening[first] + STROKE / 2
    return first + int(np.flatnonzero(near)[-1]) + 1


def _fall(opening: Openings, first: int, last: int, rest: int) -> int:
    """Returns the step at which the part of a fall after its last rest, of `rest` steps, begins."""
    arrived = first + int(np.argmax(opening[first : last + 1] <= opening[last] + STROKE / 2))
    steps = np.arange(first, arrived)
    rests = opening[np.maximum(steps - rest, first)] - opening[steps] < REST
    return int(steps[rests][-1]) + 1
