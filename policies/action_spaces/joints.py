"""Actions as joint targets relative to the measured joints."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.catalogue import EMBODIMENTS
from stringline.datasets.loading.gripper_commands import gripper_places
from stringline.policies.action_spaces.space import ActionSpace, dimensions_of_arms


class RelativeJoints(ActionSpace):
    """Targets of revolute joints relative to the measured positions; grippers stay absolute.

    All actions of a chunk are relative to the same measurement (like the poses in UMI, Chi et al.,
    RSS 2024, arXiv 2402.10329), so errors do not accumulate. Decoded targets are clipped to the
    joint limits if the embodiment is known (`datasets/embodiments/catalogue.py`).
    """

    name = "relative_joints"
    hinge: Tensor
    joint: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(self, *, contract: Contract) -> None:
        super().__init__()
        self.dim = len(contract.action)
        self.openings = gripper_places(contract)
        self.arms = dimensions_of_arms(contract)
        for dimension in contract.action:
            if dimension.kind not in ("joint", "gripper") or dimension.mode != "absolute":
                raise ValueError(
                    f"Action {dimension.name!r} is a {dimension.mode} {dimension.kind} target; "
                    f"allowed for relative joints: absolute joint and gripper targets."
                )
            if dimension.kind == "joint" and dimension.name not in contract.joints:
                raise unknown_name("measured joint for the action", dimension.name, contract.joints)
        hinge = [dimension.kind == "joint" for dimension in contract.action]
        joint = [
            contract.joints.index(each.name) if each.kind == "joint" else 0
            for each in contract.action
        ]
        low, high = _limits(contract)
        for name, table in {"hinge": hinge, "joint": joint, "lower": low, "upper": high}.items():
            self.register_buffer(name, torch.tensor(table), persistent=False)

    def targets(self, action: Tensor) -> Tensor:
        """Returns the actions unchanged."""
        return action

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets minus measured positions."""
        return targets - self._start(targets, observation)

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets within the limits of the joints."""
        action = encoded + self._start(encoded, observation)
        return torch.minimum(
            torch.maximum(action, self.lower.to(action.dtype)), self.upper.to(action.dtype)
        )

    def _start(self, like: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the origin of each dimension, (B, 1, A), zero for grippers."""
        measured = observation["joints/position"].to(like.dtype)[:, self.joint]
        return torch.where(self.hinge, measured, torch.zeros_like(measured))[:, None]


def _limits(contract: Contract) -> tuple[list[float], list[float]]:
    """Returns lowest and highest targets, (A,) each; infinite for grippers."""
    embodiment = EMBODIMENTS.get(contract.embodiment)
    hinges = (
        {joint.name: joint for joint in embodiment.joints if joint.kind == "hinge"}
        if embodiment
        else {}
    )
    limits = [hinges.get(dimension.name) for dimension in contract.action]
    return [one.lower if one else -np.inf for one in limits], [
        one.upper if one else np.inf for one in limits
    ]
