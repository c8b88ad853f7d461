"""Conditioning tokens depend on differences of positions alone."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from stringline.policies.algorithms.chunk_policy import ChunkPolicy

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]


def shifted(batch: Mapping[str, Tensor], shift: Tensor) -> dict[str, Tensor]:
    """Moves the whole world: every T_base_* is multiplied by one translation from the left."""
    moved = dict(batch)
    for key, value in batch.items():
        if key.startswith("T_base_"):
            moved[key] = value.clone()
            moved[key][:, :3, 3] += shift.to(value.dtype)
    return moved


def in_double(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    doubled = {
        key: value.double() if value.is_floating_point() else value for key, value in batch.items()
    }
    return doubled | {
        key: value.double() for key, value in batch.items() if key.startswith("depth/")
    }


def test_an_encoder_of_no_cameras_is_refused(make_policy: MakePolicy) -> None:
    with pytest.raises(ValueError, match=r"ObservationEncoder reads no camera; .*cameras"):
        make_policy("policy.observation_encoder.cameras=[]")


@pytest.mark.parametrize("encoder", ["cayley", "circulant", "rope_mixed", "none"])
@pytest.mark.parametrize("values", ["true", "false"])
def test_a_common_translation_has_no_effect(
    make_policy: MakePolicy, make_batch: MakeBatch, encoder: str, values: str
) -> None:
    blocks = (
        ["encoder.encoding.block=4"] if encoder == "circulant" else []
    )  # The small policy has heads of 8 channels.
    policy = make_policy(f"+encoder={encoder}", f"encoder.values={values}", *blocks).double()
    torch.set_default_dtype(torch.float64)
    try:
        batch = in_double(make_batch(3))
        here = policy.observation_encoder(batch).tokens
        there = policy.observation_encoder(shifted(batch, torch.tensor([0.4, -1.3, 0.7]))).tokens
    finally:
        torch.set_default_dtype(torch.float32)
    assert (here - there).abs().max() < 1e-9 * here.abs().max()


def test_a_translation_of_one_part_has_an_effect(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy, batch = make_policy(), make_batch(2)
    moved = dict(batch)
    moved["T_base_gripper/left"] = batch["T_base_gripper/left"].clone()
    moved["T_base_gripper/left"][:, 0, 3] += 0.05
    assert (
        policy.observation_encoder(batch).tokens - policy.observation_encoder(moved).tokens
    ).abs().max() > 1e-3


def test_without_places_a_moved_gripper_has_no_effect(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy, batch = make_policy("+encoder=none"), make_batch(2)
    moved = dict(batch)
    moved["T_base_gripper/left"] = batch["T_base_gripper/left"] + 0.05
    assert torch.equal(
        policy.observation_encoder(batch).tokens, policy.observation_encoder(moved).tokens
    )


def test_only_the_chosen_cameras_are_read(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy, batch = make_policy("policy.observation_encoder.cameras=[overhead]"), make_batch(2)
    kept = {key: batch[key] for key in policy.observation_encoder.keys}
    assert not any("wrist" in key or "table" in key for key in kept)
    assert policy.observation_encoder(kept).tokens.shape == (2, 4 + 2, 32)
    assert [camera.name for camera in policy.contract.cameras] == ["overhead"]


def test_an_unknown_camera_is_reported_with_the_nearest(make_policy: MakePolicy) -> None:
    with pytest.raises(ValueError, match=r"no camera 'overhaed'. Did you mean 'overhead'"):
        make_policy("policy.observation_encoder.cameras=[overhaed]")
