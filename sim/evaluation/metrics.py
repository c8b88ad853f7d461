"""Metrics of the commands of an episode: requests beyond the limits of joints, and smoothness."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.catalogue import EMBODIMENTS

_POSITION_SLACK_RAD = 1e-3  # A target within this distance of a limit counts as a hit.
_SPEED_SLACK = 1e-3  # Relative rounding error of the differences of 32-bit targets.


def limit_hits(actions: NDArray[Any], contract: Contract) -> float | None:
    """Returns the share of control periods, 0 to 1, whose command exceeds a joint's limits.

    Commands (T, A) are in the units of the contract, one for each control period. For an unknown
    embodiment the result is None.

    A period counts when the target of at least one joint lies at or beyond a position limit (to
    0.001 rad), or when the step from the previous target exceeds the largest speed of the joint by
    more than 0.1 %; the first period has no speed. Grippers do not count, because open and closed
    are their limits. Relative and Cartesian commands do not count either. A filter or a servo would
    clip such commands, so the arm would not follow the policy.
    """
    embodiment = EMBODIMENTS.get(contract.embodiment)
    if embodiment is None:
        return None
    joints = {
        joint.name: index for index, joint in enumerate(embodiment.joints) if joint.kind == "hinge"
    }
    columns = [
        index
        for index, dimension in enumerate(contract.action)
        if dimension.kind == "joint" and dimension.mode == "absolute" and dimension.name in joints
    ]
    if not len(actions) or not columns:
        return 0.0
    indices = [joints[contract.action[column].name] for column in columns]
    targets = actions[:, columns].astype(np.float64)
    lower = embodiment.lower[indices] + _POSITION_SLACK_RAD
    upper = embodiment.upper[indices] - _POSITION_SLACK_RAD
    hits = (targets <= lower) | (targets >= upper)
    speeds = np.abs(np.diff(targets, axis=0)) * contract.control_hz
    hits[1:] |= speeds > embodiment.velocity_limits[indices] * (1 + _SPEED_SLACK)
    return float(np.mean(hits.any(axis=1)))


def command_acceleration(actions: NDArray[Any], contract: Contract) -> float:
    """Returns the root mean square of the second difference of joint commands (T, A), rad/s^2.

    Grippers do not count. Without joint commands, or for fewer than three actions, it is 0.
    """
    joints = [index for index, dimension in enumerate(contract.action) if dimension.kind == "joint"]
    second = np.diff(actions[:, joints].astype(np.float64), n=2, axis=0) * contract.control_hz**2
    return float(np.sqrt(np.mean(second**2))) if second.size else 0.0
