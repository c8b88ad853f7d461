"""Probes: how well a policy predicts held-out demonstrations, measured during its training.

They are a first judgement of a training of minutes, without an episode in simulation. Success
also depends on what a task forgives and on slips in the hand (`docs/results.md`).

The aim probe: does a policy know from the first image where the task takes place, namely the first
grasp? The motion probe: how exact single actions of a chunk are, beside holding and a linear map;
a policy that does not know its own posture begins each chunk with a jump, which neither its loss
nor a probe of the last action shows. The keypose probe: how far predicted keyposes are from
recorded ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.loading.keyposes import NO_EVENT, PREFIX
from stringline.policies.action_spaces.gripper_poses import ForwardKinematics
from stringline.policies.action_spaces.space import ContractActions, HeldActions, can_hold
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.algorithms.posture import ChunkRemainder, Posture
from stringline.policies.networks.keypose_head import VOTED, rotation_of
from stringline.policies.observation.normaliser import POSITION

LEAST_RANGE = 0.05  # Of commanded openings; a gripper that moves less does not grasp.
OPEN = 0.5
CLOSED = 0.25


@dataclass(frozen=True)
class Grasp:
    """A grasp of a demonstration.

    Attributes:
        arm: Name of the arm.
        position: Measured place of its gripper (3,), metres in the base frame.
    """

    arm: str
    position: NDArray[np.float64]


def first_grasp(arrays: Mapping[str, Array], contract: Contract) -> Grasp | None:
    """Returns the first grasp of an episode: the first command that closes a gripper.

    A gripper closes when its command falls from above half of the range that its commands have in
    this episode to below a quarter. So a gripper that first opens, or that narrows before it
    closes, is found as well.

    Returns:
        None if no gripper closes, or its place is unknown.
    """
    found: list[tuple[int, str]] = []
    for index, dimension in enumerate(contract.action):
        key = f"T_base_gripper/{dimension.arm}"
        if dimension.kind != "gripper" or dimension.mode != "absolute" or key not in arrays:
            continue
        step = _closing(np.asarray(arrays["action"])[:, index])
        if step is not None:
            found.append((step, dimension.arm))
    if not found:
        return None
    step, arm = min(found)
    return Grasp(arm, np.asarray(arrays[f"T_base_gripper/{arm}"][step][:3, 3], np.float64))


def _closing(command: Array) -> int | None:
    """Returns the step of commands (T,) that closes the gripper."""
    low = command.min()
    span = command.max() - low
    if span < LEAST_RANGE:
        return None
    was_open = np.maximum.accumulate(command) >= low + OPEN * span
    steps = np.flatnonzero(was_open & (command <= low + CLOSED * span))
    return int(steps[0]) if len(steps) else None


FIRST_WINDOWS = 64
"""Largest number of episodes that a training probes."""

EXPLAINED = "explained"
AIM = "aim_mm"

_AIM_SAMPLES = 4
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
        last = [policy.predict(windows, generator)[:, -1] for _ in range(_AIM_SAMPLES)]
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
        start = []
        end = []
        target = []
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
    embodiment = embodiment_of(contract)
    if embodiment is None or contract.arms != embodiment.arms:
        return None
    commanded = [(dimension.name, dimension.mode) for dimension in contract.action]
    if commanded != [(joint.name, "absolute") for joint in embodiment.joints]:
        return None
    kinematics = ForwardKinematics(embodiment)
    return lambda action: kinematics(action)[1]


MOTION_WINDOWS = 48
"""Number of held-out windows that a training probes."""

JOINTS = "joints_mrad"
GRIPPERS = "grippers_mm"
HOLD = "_hold"
LINEAR = "_linear"
LAST = "last"

_MOTION_ACTIONS = (1, 4, 8, 16, 32)
_MOTION_ROWS = 16  # Windows at a time.


class MotionErrors:
    """Errors of the single actions of planned chunks, collected over windows.

    `joints_mrad/<n>` is the mean absolute error of the n-th action over all joints and windows, in
    mrad, and `grippers_mm/<n>` the mean distance of the grippers from the expert's, in mm; n is 1,
    4, 8, 16, 32 or `last`. `<metric><kind>/<n>` are those of other plans, such as `HOLD`.

    Attributes:
        actions: The label of each measured action, with its number in a chunk, from 0.
    """

    def __init__(self, contract: Contract, chunk: int) -> None:
        """Starts without windows; `chunk` is the number of actions of a plan."""
        self._places = commanded_places(contract)
        self._joints = [
            place
            for place, each in enumerate(contract.action)
            if each.kind == "joint" and each.unit == "rad"
        ]
        self.actions = {str(number): number - 1 for number in _MOTION_ACTIONS if number <= chunk}
        self.actions[LAST] = chunk - 1
        self._found: dict[str, list[Tensor]] = {}

    def add(
        self, planned: Tensor, batch: Mapping[str, Tensor], kind: str = ""
    ) -> dict[str, Tensor]:
        """Adds planned actions (B, T, A) for windows with `action` and `action_mask`.

        Returns:
            The errors by metric, (B, number of measured actions); NaN after the end of an episode.
        """
        steps = list(self.actions.values())
        planned = planned[:, steps]
        expert = batch["action"][:, steps]
        outside = ~batch["action_mask"].bool()[:, steps]
        errors: dict[str, Tensor] = {}
        if self._joints:
            errors[JOINTS] = 1e3 * (planned - expert)[..., self._joints].abs().mean(dim=-1)
        if self._places is not None:
            apart = (self._places(planned) - self._places(expert)).norm(dim=-1).mean(dim=-1)
            errors[GRIPPERS] = 1e3 * apart
        errors = {name: error.masked_fill(outside, torch.nan) for name, error in errors.items()}
        for name, error in errors.items():
            self._found.setdefault(f"{name}{kind}", []).append(error)
        return errors

    def metrics(self) -> dict[str, float]:
        """Returns the means over all windows, in the order of the actions."""
        means = {name: torch.cat(parts).nanmean(dim=0) for name, parts in self._found.items()}
        return {
            f"{name}/{label}": float(mean)
            for name, each in means.items()
            for label, mean in zip(self.actions, each, strict=True)
            if not mean.isnan()
        }


def joint_baselines(
    batch: Mapping[str, Tensor], linear: ChunkRemainder | None, contract: Contract
) -> dict[str, Tensor]:
    """Returns what the joints alone tell about the actions of windows, (B, T, A) by kind.

    `HOLD` holds the measured joints, as far as the contract has such actions. `LINEAR` is the
    fitted map of `linear_motion`; if that is None, there is none.
    """
    action = batch["action"]
    found: dict[str, Tensor] = {}
    if can_hold(contract):
        found[HOLD] = HeldActions(contract)(batch)[:, None].expand_as(action)
    if linear is not None:
        normal = linear.restore(torch.zeros_like(action), batch)
        found[LINEAR] = linear.action_range.restore(normal)
    return found


class MotionProbe:
    """Measures the errors of single actions on held-out windows; see `MotionErrors`.

    Beside those of the policy, `<metric>_hold/<n>` are the errors of holding the measured joints,
    `<metric>_linear/<n>` those of a linear map of joints and velocities, fitted to the training
    windows, without any image.
    """

    def __init__(
        self, windows: Mapping[str, Tensor], linear: ChunkRemainder | None, contract: Contract
    ) -> None:
        """Measures what the joints alone tell.

        Args:
            windows: Held-out windows with `action` and `action_mask`, and a batch axis.
            linear: The fitted `linear_motion`; if None, there is no linear map.
            contract: Contract of the data.
        """
        self._windows = dict(windows)
        self._contract = contract
        known = self._errors()
        for kind, planned in joint_baselines(windows, linear, contract).items():
            known.add(planned, windows, kind)
        self._known = known.metrics()

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns the metrics of a policy, of one sample for each window, and of both baselines."""
        if not isinstance(policy, ChunkPolicy):
            raise TypeError(f"The motion probe needs a chunk policy; got {type(policy).__name__}.")
        device = next(policy.parameters()).device
        generator = torch.Generator(device).manual_seed(0)
        planned = []
        for first in range(0, len(self._windows["action"]), _MOTION_ROWS):
            part = {
                key: value[first : first + _MOTION_ROWS].to(device)
                for key, value in self._windows.items()
            }
            planned.append(policy.predict(part, generator).cpu())
        found = self._errors()
        found.add(torch.cat(planned), self._windows)
        return {**found.metrics(), **self._known}

    def _errors(self) -> MotionErrors:
        return MotionErrors(self._contract, self._windows["action"].shape[1])


def linear_motion(policy: ChunkPolicy) -> ChunkRemainder | None:
    """Returns the unfitted linear map of joints and velocities to the actions of the contract.

    None if the statistics of the policy have no joints.
    """
    if POSITION not in policy.statistics:
        return None
    return ChunkRemainder(
        Posture(anchored=False, coefficients=None),
        space=ContractActions(contract=policy.contract),
        contract=policy.contract,
        statistics=policy.statistics,
        action_range=policy.contract_range,
        chunk=policy.chunk,
    )


class Probes:
    """Several probes as one; later ones add to the metrics of the former."""

    def __init__(self, probes: Sequence[Callable[[nn.Module], Mapping[str, float]]]) -> None:
        self._probes = tuple(probes)

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns the metrics of all of them."""
        return {name: value for probe in self._probes for name, value in probe(policy).items()}


PROBED_WINDOWS = 256
_KEYPOSE_ROWS = 32


class KeyposeProbe:
    """Compares the predictions of a policy with the next recorded keypose.

    Recordings of a task with several ways to grasp have several modes, of which one was recorded;
    so errors are those of the predicted mode that is nearest to it.
    """

    def __init__(self, windows: Mapping[str, Tensor]) -> None:
        """Stores held-out windows with `keypose/*` and a batch axis."""
        self._windows = dict(windows)

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns the metrics of a policy.

        `close_mm` and `open_mm` are the median distances of the position of the acting gripper from
        the recorded one, where it closes and where it opens; `close_90_mm` and `open_90_mm` are the
        ninth deciles. `keypose_deg` is the median angle of the rotation, `right_arm` the share of
        the frames in which the acting arms are the right ones.
        """
        if not isinstance(policy, KeyposePolicy):
            raise TypeError(
                f"The keypose probe needs a KeyposePolicy; got {type(policy).__name__}."
            )
        device = next(policy.parameters()).device
        generator = torch.Generator(device).manual_seed(0)
        count = len(next(iter(self._windows.values())))
        parts = [
            {
                key: value[first : first + _KEYPOSE_ROWS].to(device)
                for key, value in self._windows.items()
            }
            for first in range(0, count, _KEYPOSE_ROWS)
        ]
        found = torch.cat([policy.predict(part, generator) for part in parts])
        windows = {key: value.to(device) for key, value in self._windows.items()}
        return keypose_metrics(keypose_errors(found, windows))


def keypose_metrics(errors: Mapping[str, Tensor]) -> dict[str, float]:
    """Returns the metrics of a `KeyposeProbe` from the errors of `keypose_errors`, (E,) by name."""
    opens = errors["release"] > 0
    metrics: dict[str, float] = {}
    for name, rows in (("close", ~opens), ("open", opens)):
        if rows.any():
            metrics[f"{name}_mm"] = float(errors["nearest_mm"][rows].median())
            metrics[f"{name}_90_mm"] = float(errors["nearest_mm"][rows].quantile(0.9))
    if len(opens):
        metrics["keypose_deg"] = float(errors["rotation_deg"].median())
        metrics["right_arm"] = float(errors["right_arm"].mean())
    return metrics


def keypose_errors(prediction: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns errors of predictions (B, A, M, ...) of frames before an event, by name (E,).

    `position_mm` and `rotation_deg` are those of the most likely mode of the acting arm, and
    `nearest_mm` of the mode nearest to the recorded keypose; `release` tells openings, `right_arm`
    whether the acting arms are the predicted ones. Frames after the last event are left out.
    """
    rows = torch.nonzero(batch[f"{PREFIX}number"] != NO_EVENT)[:, 0]
    acting = batch[f"{PREFIX}acting"][rows]
    arm = acting.to(torch.uint8).argmax(dim=1)
    at = torch.arange(len(rows))
    pose = batch[f"{PREFIX}pose"][rows][at, arm]
    found = prediction[rows][at, arm]
    away = (found[..., :3] - pose[:, None, :3, 3]).norm(dim=-1)
    turns = rotation_of(found[:, 0, 3:9]).transpose(1, 2) @ pose[:, :3, :3]
    cosine = (turns.diagonal(dim1=1, dim2=2).sum(-1) - 1) / 2
    acts = prediction[rows][:, :, 0, VOTED] > 0
    before, after = (batch[f"{PREFIX}{name}"][rows][at, arm] for name in ("before", "after"))
    return {
        "position_mm": 1e3 * away[:, 0],
        "nearest_mm": 1e3 * away.min(dim=1).values,
        "rotation_deg": torch.rad2deg(torch.acos(cosine.clamp(-1, 1))),
        "release": (after > before).float(),
        "right_arm": (acts == acting).all(dim=1).float(),
    }
