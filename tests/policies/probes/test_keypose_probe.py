"""The keypose probe measures what it says, on predictions that are known."""

import math

import pytest
import torch
from tests.policies.algorithms.test_keypose_policy import clouds, make
from torch import Tensor, nn

from stringline.policies.networks.keypose_head import FLAGS, VOTED
from stringline.policies.probes.probes import KeyposeProbe, keypose_errors


def prediction_of(batch: dict[str, Tensor], modes: int = 2) -> Tensor:
    """Returns perfect predictions, whose second mode is 10 cm away."""
    pose = batch["keypose/pose"]
    rows, arms = pose.shape[:2]
    found = torch.zeros(rows, arms, modes, VOTED + FLAGS + 1)
    found[..., :3] = pose[:, :, None, :3, 3]
    found[:, :, 1:, 0] += 0.1
    found[..., 3:9] = pose[..., :3, :2].transpose(-1, -2).flatten(-2)[:, :, None]
    found[..., VOTED] = torch.where(batch["keypose/acting"], 5.0, -5.0)[:, :, None]
    return found


def test_perfect_predictions_have_no_error() -> None:
    batch = clouds(5)
    errors = keypose_errors(prediction_of(batch), batch)
    for name in ("position_mm", "nearest_mm", "rotation_deg"):
        assert errors[name].max() < 0.1
    assert errors["right_arm"].min() == 1
    assert errors["release"].max() == 0


def test_errors_are_those_of_the_acting_arm_in_mm_and_degrees() -> None:
    batch = clouds(4)
    found = prediction_of(batch)
    found[:, 0, :, 0] += 0.007
    found[:, 1] += 3.0
    found[..., VOTED] = torch.where(batch["keypose/acting"], 5.0, -5.0)[:, :, None]
    turn = torch.eye(3)
    turn[:2, :2] = torch.tensor([[math.cos(0.2), -math.sin(0.2)], [math.sin(0.2), math.cos(0.2)]])
    turned = batch["keypose/pose"][:, 0, :3, :3] @ turn
    found[:, 0, :, 3:9] = turned[..., :2].transpose(-1, -2).flatten(-2)[:, None]
    errors = keypose_errors(found, batch)
    torch.testing.assert_close(errors["position_mm"], torch.full((4,), 7.0), atol=0.01, rtol=0)
    torch.testing.assert_close(
        errors["rotation_deg"], torch.full((4,), math.degrees(0.2)), atol=0.05, rtol=0
    )


def test_the_nearest_mode_counts_and_frames_after_the_last_event_do_not() -> None:
    batch = clouds(4)
    found = prediction_of(batch).flip(2)
    batch["keypose/number"][2:] = -1
    errors = keypose_errors(found, batch)
    assert len(errors["nearest_mm"]) == 2
    assert errors["nearest_mm"].max() < 0.1
    assert errors["position_mm"].min() > 99


def test_the_probe_reports_the_same_each_time_and_by_kind() -> None:
    policy = make()
    batch = clouds(6)
    batch["keypose/after"][3:] = 1.0
    batch["keypose/before"][3:] = 0.1
    probe = KeyposeProbe(batch)
    first = probe(policy)
    assert first == probe(policy)
    assert set(first) == {
        "close_mm",
        "close_90_mm",
        "open_mm",
        "open_90_mm",
        "keypose_deg",
        "right_arm",
    }
    assert all(math.isfinite(value) for value in first.values())


def test_other_policies_are_refused() -> None:
    with pytest.raises(TypeError, match="Linear"):
        KeyposeProbe(clouds(1))(nn.Linear(1, 1))
