"""The localisation probe: does a policy localise objects by vision?"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stringline.policies.algorithms.chunk_policy import ChunkPolicy


class LocalisationProbe:
    """Compares the end of the first chunk with the expert's, on held-out demonstrations.

    At the first frame the joints contain no information about the task, so the prediction can only
    match the expert's targets by vision. A small loss shows little here: in most frames the joint
    state reveals the target, and a run with a low loss had one success in five.
    """

    def __init__(self, first_windows: Mapping[str, Tensor]) -> None:
        """Stores the first windows of held-out episodes, with `action` and a batch axis."""
        if len(first_windows["action"]) < 3:
            raise ValueError(
                f"The localisation probe needs at least 3 held-out episodes; got "
                f"{len(first_windows['action'])}."
            )
        self._windows = dict(first_windows)

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns `localisation`, the share of the variance between episodes that is explained."""
        if not isinstance(policy, ChunkPolicy):
            raise TypeError(
                f"The localisation probe needs a chunk policy; got {type(policy).__name__}."
            )
        device = next(policy.parameters()).device
        windows = {key: value.to(device) for key, value in self._windows.items()}
        predicted = policy.predict(windows, torch.Generator(device).manual_seed(0))[:, -1]
        expert = windows["action"][:, -1]
        scale = policy.contract_range.high - policy.contract_range.low
        error = (((predicted - expert) / scale) ** 2).sum()
        spread = (((expert - expert.mean(dim=0)) / scale) ** 2).sum()
        return {"localisation": float(1 - error / spread.clamp(min=1e-9))}
