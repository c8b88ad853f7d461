"""The motion probe: how exact single actions of a chunk are, beside holding and a linear map.

A policy that does not know its own posture begins each chunk with a jump, which neither its loss
nor a probe of the last action shows.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Contract
from stringline.policies.action_spaces.hold import HeldActions, can_hold
from stringline.policies.action_spaces.space import ContractActions
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.posture import ChunkRemainder, Posture
from stringline.policies.observation.joint_state import POSITION
from stringline.policies.probes.aim import commanded_places

MOTION_WINDOWS = 48
"""Number of held-out windows that a training probes."""

JOINTS = "joints_mrad"
GRIPPERS = "grippers_mm"
HOLD = "_hold"
LINEAR = "_linear"
LAST = "last"

_ACTIONS = (1, 4, 8, 16, 32)
_PART = 16  # Windows at a time.


class MotionProbe:
    """Measures the errors of single actions on held-out windows.

    `joints_mrad/<n>` is the mean absolute error of the n-th action over all joints and windows, in
    mrad, and `grippers_mm/<n>` the mean distance of the grippers from the expert's, in mm; n is 1,
    4, 8, 16, 32 or `last`. `<metric>_hold/<n>` are the errors of holding the measured joints,
    `<metric>_linear/<n>` those of a linear map of joints and velocities, fitted to the training
    windows, without any image.
    """

    def __init__(
        self, windows: Mapping[str, Tensor], linear: ChunkRemainder | None, contract: Contract
    ) -> None:
        """Measures what the joints alone tell.

        Args:
            windows: Held-out windows with `action` and `action_mask`, and a batch axis.
            linear: The fitted `linear_motion`; None: there is no linear map.
            contract: Contract of the data.
        """
        self._windows = dict(windows)
        self._places = commanded_places(contract)
        self._joints = [
            place
            for place, each in enumerate(contract.action)
            if each.kind == "joint" and each.unit == "rad"
        ]
        chunk = self._windows["action"].shape[1]
        self._chosen = {str(number): number - 1 for number in _ACTIONS if number <= chunk}
        self._chosen[LAST] = chunk - 1
        self._known: dict[str, float] = {}
        if can_hold(contract):
            held = HeldActions(contract)(self._windows)[:, None]
            self._known |= self._errors(held.expand_as(self._windows["action"]), HOLD)
        if linear is not None:
            action = self._windows["action"]
            normal = linear.restore(torch.zeros_like(action), self._windows)
            self._known |= self._errors(linear.action_range.restore(normal), LINEAR)

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns the metrics of a policy, of one sample for each window, and of both baselines."""
        if not isinstance(policy, ChunkPolicy):
            raise TypeError(f"The motion probe needs a chunk policy; got {type(policy).__name__}.")
        device = next(policy.parameters()).device
        generator = torch.Generator(device).manual_seed(0)
        planned = []
        for first in range(0, len(self._windows["action"]), _PART):
            part = {
                key: value[first : first + _PART].to(device) for key, value in self._windows.items()
            }
            planned.append(policy.predict(part, generator).cpu())
        return {**self._errors(torch.cat(planned)), **self._known}

    def _errors(self, planned: Tensor, kind: str = "") -> dict[str, float]:
        """Returns the metrics of planned actions (B, T, A), in the order of the actions."""
        expert = self._windows["action"]
        inside = self._windows["action_mask"].bool()
        errors: dict[str, Tensor] = {}
        if self._joints:
            off = (planned - expert)[..., self._joints].abs().mean(dim=-1)
            errors[JOINTS] = 1e3 * off
        if self._places is not None:
            apart = (self._places(planned) - self._places(expert)).norm(dim=-1).mean(dim=-1)
            errors[GRIPPERS] = 1e3 * apart
        return {
            f"{name}{kind}/{label}": float(error[:, step][inside[:, step]].mean())
            for name, error in errors.items()
            for label, step in self._chosen.items()
            if inside[:, step].any()
        }


def linear_motion(policy: ChunkPolicy) -> ChunkRemainder | None:
    """Returns the unfitted linear map of joints and velocities to the actions of the contract.

    None: the statistics of the policy have no joints.
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
