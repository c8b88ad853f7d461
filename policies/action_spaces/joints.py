"""Joint targets relative to where the joints are."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.catalogue import BODIES
from stringline.policies.action_spaces.space import ActionSpace


class RelativeJoints(ActionSpace):
    """Hinge targets as differences from the measured positions at the time of the observation; grippers stay absolute.

    All actions of a chunk are relative to the same measurement, the one that the policy has seen
    (as poses are in UMI, Chi et al., RSS 2024, arXiv 2402.10329), so errors do not add up along it.
    On the way back targets are kept within the limits of the hinges where the body is known
    (`datasets/embodiments/catalogue.py`).
    """

    name = "relative_joints"
    hinge: Tensor
    joint: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(self, *, contract: Contract) -> None:
        """Looks up which joint each dimension of the action moves.

        Raises:
            ValueError: A dimension is no absolute joint or gripper target, or names a joint that is
                not measured.
        """
        super().__init__()
        self.dim = len(contract.action)
        for dimension in contract.action:
            if dimension.kind not in ("joint", "gripper") or dimension.mode != "absolute":
                raise ValueError(
                    f"Action {dimension.name!r} is a {dimension.mode} {dimension.kind} target; "
                    f"relative joints are made of "
                    "absolute joint and gripper targets."
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
        """Returns the same."""
        return action

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns hinge targets less measured positions."""
        return targets - self._start(targets, observation)

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns hinge targets within the limits of the joints."""
        action = encoded + self._start(encoded, observation)
        return torch.minimum(
            torch.maximum(action, self.lower.to(action.dtype)), self.upper.to(action.dtype)
        )

    def _start(self, like: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns what each dimension is relative to, (B, 1, A), zero for grippers."""
        measured = observation["joints/position"].to(like.dtype)[:, self.joint]
        return torch.where(self.hinge, measured, torch.zeros_like(measured))[:, None]


def _limits(contract: Contract) -> tuple[list[float], list[float]]:
    """Returns lowest and highest targets, (A,) each; infinite for grippers and where the body is not known."""
    body = BODIES.get(contract.embodiment)
    hinges = {joint.name: joint for joint in body.joints if joint.kind == "hinge"} if body else {}
    limits = [hinges.get(dimension.name) for dimension in contract.action]
    return [one.lower if one else -np.inf for one in limits], [
        one.upper if one else np.inf for one in limits
    ]
