"""The keypose probe: how far predicted keyposes are from recorded ones, on held-out episodes.

They are a first judgement of a training of minutes, without an episode in simulation. Success also
depends on what a task forgives and on slips in the hand (`docs/lab/keyposes.md`).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stringline.datasets.loading.keyposes import NO_EVENT, PREFIX
from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.networks.keypose_head import VOTED, rotation_of

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
