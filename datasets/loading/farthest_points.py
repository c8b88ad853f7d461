"""Point clouds thinned by farthest point sampling, with the robot in them: the input of DP3.

`CloudMaker` removes the robot and keeps points by a hash; `SampledCloudMaker` keeps the robot and
those points that are farthest from each other. So few points outline everything in the workspace.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.workspace_clouds import (
    CloudMaker,
    CloudSettings,
    Floats,
    Workspace,
    removable_embodiment,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SampledCloudSettings(CloudSettings):
    """How sampled clouds are made.

    Attributes:
        points: Number of points that farthest point sampling chooses.
        voxel_m: Points in a voxel of this size are averaged before, m.
        robot: Whether points on the robot are kept, as published.
        robot_margin_m: Without `robot`, points within this distance of the capsules around its
            links are removed, m.
        support: Whether points of the support, such as the table, are kept. The publication crops
            them. A cloud without other points keeps them in any case.

    Other Args:
        support_points: Has no effect.
    """

    points: int = 512
    robot: bool = True
    support: bool = False


class SampledCloudMaker(CloudMaker):
    """Makes clouds of the points that are farthest from each other.

    Args:
        cameras: The cameras to fuse, with depth and calibration.
        workspace: Points outside are dropped.
        contract: The contract, whose robot is removed if the settings say so.
        settings: See `SampledCloudSettings`.

    Raises:
        ValueError: A camera lacks depth or calibration, the workspace is too large, or the robot
            cannot be removed, since its kinematics are unknown.
    """

    def __init__(
        self,
        cameras: Sequence[Camera],
        workspace: Workspace,
        contract: Contract,
        settings: SampledCloudSettings,
    ) -> None:
        embodiment = None if settings.robot else removable_embodiment(contract)
        if embodiment is None and not settings.robot:
            raise ValueError(
                f"clouds.robot is false; allowed for {contract.embodiment}, whose kinematics are "
                "unknown: true."
            )
        super().__init__(cameras, workspace, embodiment, settings)
        self._support = settings.support
        self._warned = False

    def _chosen(
        self,
        points: Floats,
        keys: NDArray[np.int64],
        free: NDArray[np.bool_],
        above: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Returns the numbers of the P points farthest from each other, of all if they are few."""
        del keys
        kept = free if self._support else free & above
        kept = kept if kept.any() else free
        places = self.settings.points
        among = np.flatnonzero(kept)
        chosen: NDArray[np.int64] = among[farthest_points(points[among], places)]
        if len(chosen) < places and not self._warned:
            self._warned = True
            logger.warning(
                "A cloud has %d points; %d are to be sampled. All are used; smaller voxels give "
                "more: policy.observation_encoder.clouds.voxel_m is %g m.",
                len(chosen),
                places,
                self.settings.voxel_m,
            )
        return chosen


def farthest_points(
    points: NDArray[np.floating[Any]], count: int, first: int | None = None
) -> NDArray[np.int64]:
    """Returns the numbers of points (N, 3), each the farthest one from all before it.

    Farthest point sampling (Gonzalez, 1985; Eldar et al., 1997): the largest distance of a point
    from the nearest chosen one is at most twice the least possible one.

    Args:
        points: The points.
        count: How many to choose; if there are fewer, all are returned.
        first: Number of the first one; if None, the one that is farthest from the mean, so that the
            chosen places do not depend on the order of the points.
    """
    count = min(count, len(points))
    columns = np.ascontiguousarray(points.T)
    if first is None:
        middle = points.mean(axis=0, dtype=np.float64)
        first = int(((points - middle) ** 2).sum(axis=1).argmax())
    chosen = np.empty(count, np.int64)
    nearest = np.full(len(points), np.inf, points.dtype)
    newest = first
    for number in range(count):
        chosen[number] = newest
        away = columns - columns[:, newest, None]
        np.square(away, out=away)
        np.minimum(nearest, away[0] + away[1] + away[2], out=nearest)
        newest = int(nearest.argmax())
    return chosen
