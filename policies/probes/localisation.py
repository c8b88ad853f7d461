"""A number to print beside the loss: does the policy know where things are when only its eyes can tell?"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stringline.policies.algorithms.chunk_policy import ChunkPolicy


class LocalisationProbe:
    """Compares the end of the first chunk with the expert's, on demonstrations that are not trained on.

    At the first frame the joints say nothing yet, so whatever the prediction shares with the
    expert's targets it has seen. A small loss proves little here: with most frames the joint state
    gives the target away, and a loss that looked fine has gone together with one success in five.
    """

    def __init__(self, first_windows: Mapping[str, Tensor]) -> None:
        """Keeps the windows of the first steps of held-out episodes: contract keys with a batch axis, and `action`.

        Raises:
            ValueError: There are fewer than three episodes, which have no variance to speak of.
        """
        if len(first_windows["action"]) < 3:
            raise ValueError(
                f"The localisation probe needs at least 3 held-out episodes; got "
                f"{len(first_windows['action'])}."
            )
        self._windows = dict(first_windows)

    def __call__(self, policy: nn.Module) -> dict[str, float]:
        """Returns `localisation`: the share of the variance between episodes that the prediction explains, 1 at best."""
        if not isinstance(policy, ChunkPolicy):
            raise TypeError(
                f"The localisation probe looks at chunk policies; got {type(policy).__name__}."
            )
        device = next(policy.parameters()).device
        windows = {key: value.to(device) for key, value in self._windows.items()}
        predicted = policy.predict(windows, torch.Generator(device).manual_seed(0))[:, -1]
        expert = windows["action"][:, -1]
        scale = policy.contract_range.high - policy.contract_range.low
        error = (((predicted - expert) / scale) ** 2).sum()
        spread = (((expert - expert.mean(dim=0)) / scale) ** 2).sum()
        return {"localisation": float(1 - error / spread.clamp(min=1e-9))}
