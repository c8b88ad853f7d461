"""The observation encoder of DP3, for comparison: one vector of a sparse point cloud and the state.

`CloudMaker` removes the robot and keeps points by a hash; `SampledCloudMaker` keeps the robot and
those points that are farthest from each other. So few points outline everything in the workspace.

Ze et al., 3D Diffusion Policy, RSS 2024 (arXiv 2403.03954), section III-B and its public code.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, WHOLE, settings_of, unknown_name
from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.statistics import GRIPPER_POSITIONS, Statistics
from stringline.datasets.loading.workspace_clouds import (
    PREFIX,
    CloudMaker,
    CloudSettings,
    Floats,
    Workspace,
    removable_embodiment,
)
from stringline.encoders.vision.rgbd import read_key
from stringline.policies.observation.interfaces import (
    ConditioningTokens,
    Instruction,
    ObservationHistory,
)
from stringline.policies.observation.observation_settings import EncoderSettings

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


JOINTS = "joints/position"
PAST = "past/"
State = Literal["both", "grippers", "joints"]
POINT_WIDTHS = (64, 128, 256)
COLOURED_WIDTH = 512
STATE_WIDTH = 64
IMAGE_KINDS = ("rgb", "depth", "intrinsics", "T_base_camera")


@dataclass(frozen=True, kw_only=True)
class PointNetSettings(EncoderSettings):
    """Settings of a `PointNetEncoder`.

    Attributes:
        normalisation: Factory of the normaliser of joints and of gripper positions.
        clouds: How clouds are made and sampled.
        workspace: Lower and upper corner of the box outside of which points are dropped, m in the
            base frame, such as [[-0.3, -0.3, 0], [0.3, 0.3, 0.4]]; if None, the box around the
            gripper positions of the data with the margins of `clouds`.
        colours: Whether the network reads the colours of points; it then has a wider layer more.
        features: Numbers per cloud.
        state_features: Numbers per state.
        state: What the state contains: `joints`, positions of `grippers`, or `both`.
        previous_steps: Age of the second observation in control periods, the number of actions
            that are executed between two plans (`evaluation.execute_steps`); 0: there is none.
    """

    clouds: SampledCloudSettings = field(default_factory=SampledCloudSettings)
    workspace: Sequence[Sequence[float]] | None = None
    colours: bool = False
    features: int = 64
    state_features: int = 64
    state: State = "both"
    previous_steps: int = 24

    def __post_init__(self) -> None:
        clouds = settings_of(SampledCloudSettings, self.clouds, "clouds")
        object.__setattr__(self, "clouds", clouds)
        COUNT.check(features=self.features, state_features=self.state_features)
        WHOLE.check(previous_steps=self.previous_steps)
        if self.state not in get_args(State):
            raise unknown_name("state", str(self.state), get_args(State))

    def box(self, statistics: Statistics) -> Workspace:
        """Returns the box of the points.

        Raises:
            ValueError: The given corners are no box, or without them the statistics lack the
                positions of the grippers.
        """
        if self.workspace is not None:
            corners = [tuple(float(number) for number in corner) for corner in self.workspace]
            match corners:
                case [(a, b, c), (x, y, z)] if a < x and b < y and c < z:
                    return Workspace((a, b, c), (x, y, z))
            raise ValueError(
                f"workspace is {[list(corner) for corner in corners]}; allowed: a lower and an "
                "upper corner, each [x, y, z] in m."
            )
        if GRIPPER_POSITIONS not in statistics:
            raise ValueError(
                "policy/observation_encoder=dp3 needs a workspace: the data have no gripper "
                "positions, which bound it otherwise. Set policy.observation_encoder.workspace="
                "[[X,Y,Z],[X,Y,Z]], or use policy/observation_encoder=vit."
            )
        return Workspace.around(statistics[GRIPPER_POSITIONS], self.clouds)


class PointNetEncoder(nn.Module):
    """One token of two observations, each a cloud and the state of the robot.

    A perceptron maps each point to 256 numbers, whose maxima over the points are projected to 64;
    another maps the state to 64. The token is the previous and the present observation beside each
    other. With `UnetDenoiser` and `condition_dim` None this is the published network, parameter
    for parameter.

    Departures from the publication and its code:

    - Points are cropped to a box around the grippers of all demonstrations (published: a box set by
      hand for each task), averaged in voxels, and points of the support are dropped by its height.
      All cameras of the data are fused (published: one).
    - Sampling begins at the point farthest from the mean (published: at the first pixel). Where a
      cloud has too few points, one of them is repeated, which changes no maximum (published: points
      at the origin are added).
    - Points are normalised by the box, colours by 0 to 255 (published: by their extremes in the
      data). The smallest range of a joint is 0.05 rad.
    - The state contains joints and gripper positions (published: what each benchmark offers, such
      as positions of hand and fingers in MetaWorld, joints in Adroit).
    - The previous observation is that of the previous plan (published: one control period ago). At
      the start of an episode it is the present one, as published.
    - The first action of a chunk is due now (published: at the time of the previous observation),
      and actions after the end of an episode do not count in the loss (published: the last one is
      repeated).
    - The trainer clips gradients, and its moving average of the weights has a constant decay in the
      end (published: no clipping, and a decay that rises to 0.9999).

    Attributes:
        cameras: The cameras whose depth makes the cloud.
        dim: Width of the token.
        clouds: Makes the clouds.
        history: The past observation; if None, only the present is read.
        instruction: None: it reads no instruction.
    """

    instruction: Instruction | None = None

    def __init__(
        self, settings: PointNetSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the encoder.

        Args:
            settings: Settings of the encoder.
            contract: Contract of the observations.
            statistics: Statistics of joints and gripper positions.

        Raises:
            ValueError: A camera lacks depth or calibration, the contract lacks the state, or the
                workspace is unknown.
        """
        super().__init__()
        self.cameras = settings.choose(contract)
        box = settings.box(statistics)
        self.clouds = SampledCloudMaker(self.cameras, box, contract, settings.clouds)
        self.register_buffer("low", torch.tensor(box.low), persistent=False)
        self.register_buffer("high", torch.tensor(box.high), persistent=False)
        self.colours = settings.colours
        _check_state(settings.state, contract, statistics)
        self.arms = () if settings.state == "joints" else contract.arms
        joints = () if settings.state == "grippers" else contract.joints
        self.joint_range = settings.normalisation(statistics[JOINTS]) if joints else None
        self.gripper_range = (
            settings.normalisation(statistics[GRIPPER_POSITIONS]) if self.arms else None
        )
        self.points = _point_layers(colours=settings.colours)
        self.project = nn.Sequential(
            nn.Linear(COLOURED_WIDTH if settings.colours else POINT_WIDTHS[-1], settings.features),
            nn.LayerNorm(settings.features),
        )
        self.embed_state = nn.Sequential(
            nn.Linear(len(joints) + 3 * len(self.arms), STATE_WIDTH),
            nn.ReLU(),
            nn.Linear(STATE_WIDTH, settings.state_features),
        )
        age_s = settings.previous_steps / contract.control_hz
        self.history = (
            ObservationHistory([age_s], images=True, tolerance_s=age_s / 2) if age_s else None
        )
        each = settings.features + settings.state_features
        self.dim = each if self.history is None else 2 * each

    low: Tensor
    high: Tensor

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads."""
        images = [f"{kind}/{camera.name}" for camera in self.cameras for kind in IMAGE_KINDS]
        read = self.joint_range is not None or self.clouds.embodiment is not None
        joints = [JOINTS] if read else []
        return [*images, *joints, *(f"T_base_gripper/{arm}" for arm in self.arms)]

    @property
    def past_keys(self) -> list[str]:
        """The keys of the contract that it reads from the past observation."""
        return [] if self.history is None else ["time", *self.keys]

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch.

        Args:
            observation: `keys` with a leading batch axis, or `cloud/*` in place of the images (see
                `Windows.batch`). With a history `past/<key>` (B, 1, ...) for each of them, and
                `past_mask` (B, 1) bool, False where the present observation takes its place.
        """
        present = self._encoded(observation)
        if self.history is None:
            return ConditioningTokens(present[:, None])
        earlier = {
            key.removeprefix(PAST): value[:, 0]
            for key, value in observation.items()
            if key.startswith(PAST)
        }
        known = read_key(observation, "past_mask")
        previous = torch.where(known, self._encoded(earlier), present)
        return ConditioningTokens(torch.cat((previous, present), dim=-1)[:, None])

    def _encoded(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the vectors (B, features + state_features) of one observation each."""
        found = self.cloud_features(*self._cloud(observation))
        state: Tensor = self.embed_state(self._state(observation))
        return torch.cat((found, state), dim=-1)

    def cloud_features(self, points: Tensor, colours: Tensor, count: Tensor) -> Tensor:
        """Returns the features (B, features) of clouds.

        Args:
            points: (B, P, 3) m in the base frame.
            colours: (B, P, 3) 0 to 255.
            count: (B,) number of points; those beyond have no effect.
        """
        inputs = 2 * (points.to(self.low.dtype) - self.low) / (self.high - self.low) - 1
        if self.colours:
            inputs = torch.cat((inputs, colours.to(inputs.dtype) / 127.5 - 1), dim=-1)
        number = torch.arange(inputs.shape[1], device=inputs.device)
        repeated = inputs[:, :1].expand_as(inputs)
        inputs = torch.where((number < count[:, None])[..., None], inputs, repeated)
        found: Tensor = self.project(self.points(inputs).amax(dim=1))
        return found

    def _cloud(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns points, colours and numbers of points, made of images unless they are there."""
        names = [f"{PREFIX}{kind}" for kind in ("points", "colours", "count")]
        if names[0] not in observation:
            read = [key for key in self.keys if not key.startswith("T_base_gripper/")]
            plain = {key: read_key(observation, key).cpu().numpy() for key in read}
            made = self.clouds.batch(plain)
            observation = {
                key: torch.from_numpy(array).to(self.low.device) for key, array in made.items()
            }
        points, colours, count = (observation[name] for name in names)
        return points, colours, count

    def _state(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the normalised states (B, S): joints, then gripper positions."""
        kind = self.low.dtype
        parts = []
        if self.joint_range is not None:
            parts.append(self.joint_range.normalise(read_key(observation, JOINTS).to(kind)))
        if self.gripper_range is not None:
            poses = [read_key(observation, f"T_base_gripper/{arm}").to(kind) for arm in self.arms]
            parts += [self.gripper_range.normalise(pose[:, :3, 3]) for pose in poses]
        return torch.cat(parts, dim=-1)


def _point_layers(*, colours: bool) -> nn.Sequential:
    """Returns the perceptron of points as in the public code, with one layer more for colours."""
    layers: list[nn.Module] = []
    width = 6 if colours else 3
    for wider in POINT_WIDTHS:
        layers += [nn.Linear(width, wider), nn.LayerNorm(wider), nn.ReLU()]
        width = wider
    if colours:
        layers.append(nn.Linear(width, COLOURED_WIDTH))
    return nn.Sequential(*layers)


def _check_state(state: State, contract: Contract, statistics: Statistics) -> None:
    """Raises a ValueError for a state that the contract lacks."""
    known = {
        "joints": bool(contract.joints) and JOINTS in statistics,
        "grippers": bool(contract.arms) and GRIPPER_POSITIONS in statistics,
    }
    lacking = [name for name, there in known.items() if state in (name, "both") and not there]
    if lacking:
        allowed = [name for name, there in known.items() if there]
        raise ValueError(
            f"policy.observation_encoder.state is {state!r}, but the data have no "
            f"{' and no '.join(lacking)}; allowed: {', '.join(allowed) or 'data with one of them'}."
        )
