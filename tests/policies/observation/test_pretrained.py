"""Pre-trained networks in a policy: they learn, act, are shown, and need no file afterwards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.pretrained import initial_weights as installed_weights
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import build_policy, load_policy, save_policy

PRETRAINED = "policy/observation_encoder=pretrained"
IMAGES = "policy.observation_encoder.images"
NETWORKS = {
    "lite0": (f"{IMAGES}.weights=installed", f"{IMAGES}.norm=frozen"),
    "siglip": (
        f"{IMAGES}.name=vit_base_patch16_siglip_224",
        f"+{IMAGES}.options={{depth: 1, embed_dim: 32, num_heads: 2}}",
    ),
    "dinov3": (
        f"{IMAGES}.name=vit_small_patch16_dinov3",
        f"{IMAGES}.size=48",
        f"+{IMAGES}.options={{depth: 1, embed_dim: 32, num_heads: 2}}",
    ),
}
MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]


@pytest.mark.parametrize("network", NETWORKS)
def test_it_learns_acts_and_is_shown(
    make_policy: MakePolicy,
    make_batch: MakeBatch,
    observe: Callable[[int], dict[str, Array]],
    network: str,
) -> None:
    policy = make_policy(PRETRAINED, *NETWORKS[network]).train()
    batch = make_batch(2)
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert [name for name, each in policy.named_parameters() if each.grad is None] == []
    policy.eval()
    plan = policy.session(0).plan(observe(0))
    assert plan.action.shape == (8, 14)
    found = policy.attention_map(observe(0))
    assert found is not None
    assert found.points.shape == (found.weights.shape[1], 3)
    assert len(found.points) > 0


def test_a_checkpoint_needs_no_installed_weights(
    tmp_path: Path,
    configuration: Callable[..., dict[str, object]],
    contract: Contract,
    statistics: Statistics,
    observe: Callable[[int], dict[str, Array]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = configuration(PRETRAINED, *NETWORKS["lite0"])
    torch.manual_seed(0)
    policy = build_policy(model, contract, statistics).eval()
    save_policy(tmp_path, policy, model, {})
    monkeypatch.setattr(installed_weights, "_PACKAGES", {})
    again = load_policy(tmp_path)
    seen = observe(0)
    np.testing.assert_array_equal(
        again.session(0).plan(seen).action, policy.session(0).plan(seen).action
    )


@pytest.mark.parametrize("network", NETWORKS)
def test_folding_changes_no_action(
    make_policy: MakePolicy, observe: Callable[[int], dict[str, Array]], network: str
) -> None:
    policy = make_policy(PRETRAINED, *NETWORKS[network]).eval()
    seen = observe(0)
    expected = policy.session(0).plan(seen).action
    encoder: Any = policy.observation_encoder
    attention = encoder.blocks.blocks[0].attention
    before = attention.qkv.weight.clone()
    encoder.blocks.fold_()
    assert not torch.equal(attention.qkv.weight, before)
    np.testing.assert_allclose(policy.session(0).plan(seen).action, expected, atol=1e-4)


class Tokens(nn.Module):
    """The tokens of an observation encoder, which `torch.export` takes as tensors alone."""

    def __init__(self, policy: ChunkPolicy) -> None:
        super().__init__()
        self.encoder = policy.observation_encoder

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        return self.encoder(observation).tokens


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_the_observation_encoder_exports(
    make_policy: MakePolicy, make_batch: MakeBatch, network: str
) -> None:
    tokens = Tokens(make_policy(PRETRAINED, *NETWORKS[network]).eval())
    batch = make_batch(2)
    other = {key: value.flip(0) for key, value in batch.items()}
    with torch.no_grad():
        exported = torch.export.export(tokens, (batch,)).module()
        torch.testing.assert_close(exported(other), tokens(other), rtol=1e-4, atol=1e-4)
        assert not torch.equal(tokens(other), tokens(batch))


def test_settings_that_a_network_would_ignore_are_refused(make_policy: MakePolicy) -> None:
    with pytest.raises(ValueError, match=r"depth_input is DepthChannel, .*\(depth=colours\)"):
        make_policy(PRETRAINED, "+depth=channel")
    with pytest.raises(ValueError, match="learned_places is true"):
        make_policy(PRETRAINED, "+policy.observation_encoder.learned_places=true")
