"""The spaces of observations and actions for gymnasium."""

from typing import Any, cast

import gymnasium
import numpy as np

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.embodiments.embodiment import Embodiment

Space = gymnasium.spaces.Box


def observation_space(
    contract: Contract, segments: int | None = None
) -> gymnasium.Space[dict[str, Array]]:
    """Returns the space of observations, with segmentations if a number of segments is given."""
    spaces: dict[str, gymnasium.Space[Any]] = {"time": _numbers(kind=np.float64)}
    spaces |= {
        f"joints/{kind}": _numbers(len(contract.joints))
        for kind in ("position", "velocity", "effort")
    }
    spaces |= {f"T_base_gripper/{arm}": _numbers(4, 4) for arm in contract.arms}
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        name = camera.name
        spaces[f"rgb/{name}"] = Space(0, 255, (*size, 3), np.uint8)
        spaces[f"depth/{name}"] = Space(0, np.iinfo(np.uint16).max, size, np.uint16)
        if segments is not None:
            spaces[f"segmentation/{name}"] = Space(0, segments - 1, size, np.uint8)
        spaces[f"time/{name}"] = _numbers(kind=np.float64)
        spaces[f"intrinsics/{name}"] = _numbers(3, 3)
        spaces[f"T_base_camera/{name}"] = _numbers(4, 4)
    return cast("gymnasium.Space[dict[str, Array]]", gymnasium.spaces.Dict(spaces))


def action_space(embodiment: Embodiment) -> gymnasium.spaces.Box:
    """Returns the space of actions (J,): joint targets in rad and openings, within their limits."""
    return Space(embodiment.lower.astype(np.float32), embodiment.upper.astype(np.float32))


def _numbers(*shape: int, kind: type[np.floating[Any]] = np.float32) -> gymnasium.spaces.Box:
    return Space(-np.inf, np.inf, shape, kind)
