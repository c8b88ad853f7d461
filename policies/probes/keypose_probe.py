"""The keypose probe: how far predicted keyposes are from recorded ones, on held-out episodes.

In measurements it predicted the success of every policy, so a training of minutes can be judged
without an episode in simulation (`docs/results.md`).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stringline.policies.algorithms.keypose_policy import KeyposePolicy, keypose_errors

PROBED_WINDOWS = 256
_ROWS = 32


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
            {key: value[first : first + _ROWS].to(device) for key, value in self._windows.items()}
            for first in range(0, count, _ROWS)
        ]
        found = torch.cat([policy.predict(part, generator) for part in parts])
        windows = {key: value.to(device) for key, value in self._windows.items()}
        errors = keypose_errors(found, windows)
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
