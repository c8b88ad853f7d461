"""Cameras without depth: tokens on their rays, instead of a bag of patches."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from tests.policies.conftest import model_configuration
from tests.policies.observation.test_observation_encoder import in_double, shifted
from torch import Tensor

from stringline import ChunkPolicy, Contract, ObservationEncoder
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.checkpoints.load import build_policy

MakeBatch = Callable[[int], dict[str, Tensor]]


@pytest.fixture
def contract(contract: Contract) -> Contract:
    """The contract of a colour-only data set, calibrated."""
    return contract.with_cameras(*(replace(camera, depth=None) for camera in contract.cameras))


ORDER = torch.tensor([2, 0, 3, 1])


def _shuffled(images: Tensor) -> Tensor:
    """Returns images (B, 32, 32, 3) with their 2 x 2 patches in another order."""
    cells = images.reshape(-1, 2, 16, 2, 16, 3).transpose(2, 3).flatten(1, 2)[:, ORDER]
    return cells.reshape(-1, 2, 2, 16, 16, 3).transpose(2, 3).reshape(images.shape)


def _of_cameras(policy: ChunkPolicy, batch: Mapping[str, Tensor]) -> Tensor:
    """Returns the tokens of patches, (B, cameras, 4, dim)."""
    tokens = policy.observation_encoder(batch).tokens[:, :-2]
    return tokens.reshape(len(tokens), -1, 4, tokens.shape[-1])


EMBEDDING = (
    "+policy.observation_encoder.embedding={_target_: stringline.PatchProjection, _partial_: true}"
)


@pytest.mark.parametrize(("coordinates", "bag"), [("metric", True), ("rays", False)])
def test_shuffled_patches_change_more_than_their_order(
    make_policy: Callable[..., ChunkPolicy], make_batch: MakeBatch, coordinates: str, bag: bool
) -> None:
    """In metres without depth, they do not: the encoder sees a bag of patches."""
    policy = make_policy(f"+coordinates={coordinates}", EMBEDDING)
    batch = make_batch(2)
    mixed = {key: _shuffled(x) if key.startswith("rgb/") else x for key, x in batch.items()}
    tokens, others = _of_cameras(policy, batch), _of_cameras(policy, mixed)
    difference = (tokens[:, :, ORDER] - others).abs().max() / tokens.abs().max()
    assert (difference < 1e-5) == bag
    assert bag or difference > 1e-2


@pytest.mark.parametrize("history", ["none", "state"])
def test_a_shift_of_the_world_has_no_effect(
    make_policy: Callable[..., ChunkPolicy], make_batch: MakeBatch, history: str
) -> None:
    """With a plane, shifts along it; without one, all shifts."""
    torch.set_default_dtype(torch.float64)
    try:
        batch = in_double(make_batch(2))
        for plane, shift in (("0.0", [0.4, -1.3, 0.0]), ("null", [0.4, -1.3, 0.7])):
            policy = make_policy("+coordinates=rays", f"coordinates.places.plane_m={plane}")
            encode = policy.double().observation_encoder
            here = encode(batch).tokens
            there = encode(shifted(batch, torch.tensor(shift))).tokens
            assert (here - there).abs().max() < 1e-9 * here.abs().max()
    finally:
        torch.set_default_dtype(torch.float32)


def test_every_patch_has_a_position(
    make_policy: Callable[..., ChunkPolicy], make_batch: MakeBatch
) -> None:
    policy = make_policy("+coordinates=rays", "coordinates.places.spread=0.2")
    batch = make_batch(2)
    assert not any(key.startswith("depth/") for key in policy.observation_encoder.keys)
    encoder = policy.observation_encoder
    assert isinstance(encoder, ObservationEncoder)
    tokens = encoder.tokenise(batch)
    assert tokens.has_position.all()
    assert tokens.spread is not None
    assert tokens.spread.norm(dim=-1).min() > 0.01


def test_rays_need_calibrated_cameras(contract: Contract, statistics: Statistics) -> None:
    first, *others = contract.cameras
    mixed = contract.with_cameras(replace(first, has_geometry=False), *others)
    with pytest.raises(ValueError, match="Camera 'overhead' has no intrinsics .*coordinates=grid"):
        build_policy(model_configuration("+coordinates=rays"), mixed, statistics)
