"""The aim probe: does a policy know from the first image where the task takes place?"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.catalogue import EMBODIMENTS
from stringline.policies.action_spaces.kinematics import ForwardKinematics
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.probes.grasps import Grasp

FIRST_WINDOWS = 64
"""Largest number of episodes that a training probes."""

EXPLAINED = "explained"
AIM = "aim_mm"

_SAMPLES = 4
_LEAST_MOTION_M = 0.005  # A shorter motion has no direction.


class AimProbe:
    """Compares the first chunks of a policy with the expert's, on held-out demonstrations.

    A policy with several modes is measured by the mean of its samples, and by places in space: a
    single sample over all joints differs from the expert's also in pace and posture, and a grasp
    that was known exactly got .77 where 1 is the best. A small loss shows little: in most frames
    the joint state reveals the target.
    """

    def __init__(
        self, first_windows: Mapping[str, Tensor], grasps: Sequence[Grasp | None] = ()
    ) -> None:
        """Stores held-out episodes.

        Args:
            first_windows: The first windows of B episodes, with `action` and a batch axis.
            grasps: The first grasp of each episode; empty: they are unknown.

        Raises:
            ValueError: There are fewer than 3 episodes, or another number of grasps.
        """
        count = len(first_windows["action"])
        if count < 3:
            raise ValueError(f"The aim probe needs at least 3 held-out episodes; got {count}.")
        if grasps and len(grasps) != count:
            raise ValueError(f"There are {len(grasps)} grasps of {count} episodes.")
        self._windows = dict(first_windows)
        self._grasps = [(row, grasp) for row, grasp in enumerate(grasps) if grasp is not None]

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns the metrics of a policy.

        `explained` is the share of the variance between episodes that the mean of the samples
        explains, at most 1: of the places of all grippers at the end of the chunk, or of the last
        normalised action where the kinematics are unknown. `aim_mm` is the median over the episodes
        of the level distance, in mm, between the place of the first grasp and the straight line
        from the gripper through its place at the end of the chunk; without grasps it is absent.
        """
        if not isinstance(policy, ChunkPolicy):
            raise TypeError(f"The aim probe needs a chunk policy; got {type(policy).__name__}.")
        device = next(policy.parameters()).device
        windows = {key: value.to(device) for key, value in self._windows.items()}
        generator = torch.Generator(device).manual_seed(0)
        last = [policy.predict(windows, generator)[:, -1] for _ in range(_SAMPLES)]
        places = commanded_places(policy.contract)
        if places is None:
            scale = policy.contract_range.high - policy.contract_range.low
            predicted = torch.stack(last).mean(dim=0) / scale
            return {EXPLAINED: explained(predicted, windows["action"][:, -1] / scale)}
        ends = torch.stack([places(each) for each in last]).mean(dim=0)
        metrics = {EXPLAINED: explained(ends, places(windows["action"][:, -1]))}
        if self._grasps:
            metrics[AIM] = 1e3 * float(self._aim(windows, ends, policy.contract.arms).median())
        return metrics

    def _aim(self, windows: Mapping[str, Tensor], ends: Tensor, arms: Sequence[str]) -> Tensor:
        """Returns the aim of each episode with a grasp, metres; `ends` are (B, arms, 3)."""
        start, end, target = [], [], []
        for row, grasp in self._grasps:
            start.append(windows[f"T_base_gripper/{grasp.arm}"][row, :3, 3])
            end.append(ends[row, arms.index(grasp.arm)])
            target.append(ends.new_tensor(grasp.position))
        return level_distance(torch.stack(start), torch.stack(end), torch.stack(target))


def explained(predicted: Tensor, expert: Tensor) -> float:
    """Returns the share of the variance of `expert` (B, ...) over B that is explained."""
    error = ((predicted - expert) ** 2).sum()
    spread = ((expert - expert.mean(dim=0)) ** 2).sum()
    return float(1 - error / spread.clamp(min=1e-9))


def level_distance(start: Tensor, end: Tensor, target: Tensor) -> Tensor:
    """Returns the distance of targets from rays in the x-y plane, (B,), in metres.

    The rays begin at `start` (B, 3) and pass through `end` (B, 3); a motion of less than 5 mm has
    no direction, so there the distance from `start` counts.
    """
    motion = (end - start)[:, :2]
    offset = (target - start)[:, :2]
    length = motion.norm(dim=-1, keepdim=True)
    direction = torch.where(
        length < _LEAST_MOTION_M, 0.0, motion / length.clamp(min=_LEAST_MOTION_M)
    )
    along = (offset * direction).sum(dim=-1, keepdim=True).clamp(min=0)
    distance: Tensor = (offset - along * direction).norm(dim=-1)
    return distance


def commanded_places(contract: Contract) -> Callable[[Tensor], Tensor] | None:
    """Returns the kinematics of the grippers, from actions (..., A) to places (..., arms, 3).

    Returns:
        None if actions are not the absolute joint targets of an embodiment with known kinematics.
    """
    embodiment = EMBODIMENTS.get(contract.embodiment)
    if embodiment is None or contract.arms != embodiment.arms:
        return None
    commanded = [(dimension.name, dimension.mode) for dimension in contract.action]
    if commanded != [(joint.name, "absolute") for joint in embodiment.joints]:
        return None
    kinematics = ForwardKinematics(embodiment)
    return lambda action: kinematics(action)[1]
