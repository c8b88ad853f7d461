"""The actions that hold the measured joints: where a robot stands, as targets of its contract."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Contract

_GRIPPER = "gripper"


def can_hold(contract: Contract) -> bool:
    """Returns whether actions can hold a robot: absolute targets of measured joints and grippers.

    A gripper need not be measured.
    """
    arms = [each for each in contract.action if each.kind != _GRIPPER]
    return (
        bool(arms)
        and all(each.kind == "joint" and each.name in contract.joints for each in arms)
        and all(each.mode == "absolute" for each in contract.action)
    )


class HeldActions(nn.Module):
    """Reads the measured joints of an observation as an action."""

    joint: Tensor
    measured: Tensor

    def __init__(self, contract: Contract) -> None:
        """Finds the joint of each dimension of an action.

        Raises:
            ValueError: Actions of the contract cannot hold the robot; see `can_hold`.
        """
        super().__init__()
        if not can_hold(contract):
            raise ValueError(
                "Actions of this contract cannot hold the measured joints; allowed: absolute "
                "targets of measured joints, and of grippers."
            )
        names = [each.name for each in contract.action]
        known = [name in contract.joints for name in names]
        joints = [contract.joints.index(name) if name in contract.joints else 0 for name in names]
        self.register_buffer("joint", torch.tensor(joints), persistent=False)
        self.register_buffer("measured", torch.tensor(known), persistent=False)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the actions (B, A) of B observations, from `joints/position` (B, J).

        The opening of a gripper without a measurement is 0.
        """
        held = observation["joints/position"][:, self.joint]
        return torch.where(self.measured, held, torch.zeros_like(held))
