"""The state of the joints as one vector: positions and, if the data have them, velocities."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.vision.camera_views import read_key
from stringline.policies.observation.normaliser import MeanStdNormaliser, Normaliser

POSITION = "joints/position"
VELOCITY = "joints/velocity"


class JointState(nn.Module):
    """Normalises joint positions and velocities to one vector (B, S), S = `dim`.

    Velocities are read if the statistics of the training data have them; an observation then needs
    them too.

    Attributes:
        keys: The keys of the contract that it reads.
        dim: Numbers of a state, S.
    """

    def __init__(self, statistics: Statistics) -> None:
        """Sets the ranges, of mean 0 and standard deviation 1.

        Raises:
            ValueError: The statistics have no joint positions.
        """
        super().__init__()
        if POSITION not in statistics:
            raise ValueError(
                f"There are no statistics of {POSITION!r}; known: {', '.join(statistics)}. A "
                f"policy without measured joints needs policy.posture=null."
            )
        self.keys = tuple(key for key in (POSITION, VELOCITY) if key in statistics)
        self.ranges = nn.ModuleList(MeanStdNormaliser(statistics[key]) for key in self.keys)
        self.dim = sum(len(statistics[key].mean) for key in self.keys)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the states (B, S) of B observations, float32 or the measured type."""
        parts = [
            each.normalise(_precise(read_key(observation, key)))
            for key, each in zip(self.keys, self._ranges(), strict=True)
        ]
        return torch.cat(parts, dim=-1)

    def _ranges(self) -> list[Normaliser]:
        """Returns the ranges with their type, which `ModuleList` does not keep."""
        return [each for each in self.ranges if isinstance(each, Normaliser)]


def _precise(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))
