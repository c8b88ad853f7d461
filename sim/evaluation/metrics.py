"""What an episode's commands say beside success: whether a policy asks for more than the arms can do."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.catalogue import BODIES
from stringline.datasets.embodiments.embodiment import Embodiment

_POSITION_SLACK_RAD = 1e-3  # A target that near a limit counts as at it.
_SPEED_SLACK = 1e-3  # Share of the limit: differences of 32-bit targets are that uncertain.


def limit_hits(
    actions: NDArray[Any], contract: Contract, embodiment: Embodiment | None = None
) -> float:
    """Returns the share of control periods, 0 to 1, whose command asks a joint for more than its limits allow.

    A period counts when the target of at least one joint lies at or beyond a position limit (to
    0.001 rad), or when reaching it from the target before needs more than the joint's largest speed
    (by more than 0.1 %); the first period has no speed. Grippers do not count: they are open or
    closed, which is where their limits are. Relative and Cartesian commands do not count either. A
    filter or a servo would clip such commands: the arm would do something else than the policy
    asked for.

    Args:
        actions: Executed commands (T, A) in the units of the contract, one for each control period.
        contract: What the dimensions of an action are, and how many there are per second.
        embodiment: Whose limits count; None: those of the body that the contract names, of ALOHA
            where it is unknown.
    """
    body = BODIES.get(contract.embodiment, ALOHA) if embodiment is None else embodiment
    joints = {joint.name: index for index, joint in enumerate(body.joints) if joint.kind == "hinge"}
    columns = [
        index
        for index, dimension in enumerate(contract.action)
        if dimension.kind == "joint" and dimension.mode == "absolute" and dimension.name in joints
    ]
    if not len(actions) or not columns:
        return 0.0
    places = [joints[contract.action[column].name] for column in columns]
    targets = actions[:, columns].astype(np.float64)
    lower = body.lower[places] + _POSITION_SLACK_RAD
    upper = body.upper[places] - _POSITION_SLACK_RAD
    hits = (targets <= lower) | (targets >= upper)
    speeds = np.abs(np.diff(targets, axis=0)) * contract.control_hz
    hits[1:] |= speeds > body.velocity_limits[places] * (1 + _SPEED_SLACK)
    return float(np.mean(hits.any(axis=1)))
