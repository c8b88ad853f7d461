"""The encoder of point clouds: invariances, absent tokens, and every encoding of the product."""

import pytest
import torch
from tests.policies.algorithms.test_keypose_policy import ARMS, clouds, make
from torch import Tensor

from stringline import ALOHA, ConditioningTokens, PointEncoder
from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.policies.algorithms.keypose_augmentation import SceneAugmentation

ENCODINGS = choice_names(CONFIGS, "encoder")
ALL = "policy.observation_encoder.voxels.tokens=128"


def encoder(*overrides: str) -> PointEncoder:
    found = make(*overrides).double().observation_encoder
    assert isinstance(found, PointEncoder)
    return found


def example(count: int = 2) -> dict[str, Tensor]:
    batch = clouds(count)
    roots = torch.stack([torch.tensor(chain.T_base_root) for chain in ALOHA.chains])
    batch |= {
        f"T_base_root/{arm}": roots[number].repeat(count, 1, 1) for number, arm in enumerate(ARMS)
    }
    return {
        key: value.double() if value.is_floating_point() else value for key, value in batch.items()
    }


def encoded(network: PointEncoder, batch: dict[str, Tensor]) -> ConditioningTokens:
    found = network(batch)
    assert isinstance(found, ConditioningTokens)
    return found


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_builds_and_runs_at_the_default_width(name: str) -> None:
    block = ["encoder.encoding.block=8"] if name == "circulant" else []
    network = encoder(f"+encoder={name}", "policy.observation_encoder.dim=96", *block)
    found = encoded(network, example())
    assert found.tokens.shape == (2, 24 + len(ARMS), 96)
    assert found.tokens.isfinite().all()


@pytest.mark.parametrize("name", ["circulant", "cayley", "rope_mixed"])
def test_a_common_shift_changes_nothing_without_place_features(name: str) -> None:
    """Of the cloud, the grippers and the roots: then only differences of places count."""
    network = encoder(f"+encoder={name}", "policy.observation_encoder.place_features=false", ALL)
    batch = example()
    shift = 0.025 * torch.tensor([2.0, -3.0, 2.0]).double()
    moved = dict(batch)
    moved["cloud/points"] = batch["cloud/points"] + shift
    moved["cloud/support"] = batch["cloud/support"] + shift[2]
    for kind in ("gripper", "root"):
        for arm in ARMS:
            pose = batch[f"T_base_{kind}/{arm}"].clone()
            pose[:, :3, 3] += shift
            moved[f"T_base_{kind}/{arm}"] = pose
    first, second = (encoded(network, each).tokens[:, -2:] for each in (batch, moved))
    torch.testing.assert_close(second, first, atol=1e-6, rtol=1e-6)


def test_absent_tokens_have_no_effect() -> None:
    """A cloud with few voxels gives the same with more places for tokens."""
    batch = example()
    batch["cloud/points"][:, 20:] = batch["cloud/points"][:, :1]
    arms = []
    for tokens in (24, 60):
        network = encoder(f"policy.observation_encoder.voxels.tokens={tokens}")
        found = encoded(network, batch)
        assert found.present is not None
        arms.append(found.tokens[:, -2:])
    torch.testing.assert_close(*arms)


def test_tokens_are_independent_of_the_batch() -> None:
    network = encoder()
    batch = example(3)
    whole = encoded(network, batch)
    for row in range(3):
        alone = encoded(network, {key: value[row : row + 1] for key, value in batch.items()})
        torch.testing.assert_close(alone.tokens[0], whole.tokens[row], atol=1e-7, rtol=1e-7)


def test_scenes_that_training_moves_as_far_as_it_may_keep_their_voxels() -> None:
    """Also the corners of the workspace, with the default augmentation and with the mirror."""
    policy = make(ALL, "policy.augmentation.mirror=true")
    network = policy.observation_encoder
    assert isinstance(network, PointEncoder)
    box = network.maker.workspace
    low = torch.tensor(box.low)
    high = torch.tensor(box.high)
    batch = clouds(64)
    corners = torch.cartesian_prod(*torch.stack((low + 0.01, high - 0.01), 1))
    batch["cloud/points"] = corners.repeat(64, 16, 1)
    settings = SceneAugmentation(mirror=True, jitter_m=0, dropout=0, hold=0)
    torch.manual_seed(0)
    moved = settings(batch, ARMS, policy.roots, ALOHA.grippers)
    inputs = (moved[f"cloud/{key}"] for key in ("points", "colours", "count", "support"))
    found = network.voxels(*inputs)
    assert (found.present.sum(1) >= 8).all()
