"""Diffusion policy's U-Net: the published structure, and the interface of a denoiser."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringline import UnetDenoiser
from stringline.policies.networks.unet import ConditionalUnet, UnetSettings, level_features

SMALL = UnetSettings(down_dims=(16, 32, 64), condition_dim=24, heads=4, level_dim=16)


@pytest.fixture
def denoiser() -> UnetDenoiser:
    torch.manual_seed(0)
    return UnetDenoiser(SMALL, action_dim=5, chunk=8, conditioning_dim=12)


def sized(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("down_dims", "published"), [((512, 1024, 2048), 263_253_134), ((256, 512, 1024), 70_743_950)]
)
def test_the_number_of_parameters_is_the_published_one(
    down_dims: Sequence[int], published: int
) -> None:
    """Counted in `ConditionalUnet1D` of diffusion_policy: 14 numbers per action, condition 540."""
    with torch.device("meta"):
        assert (
            sized(
                ConditionalUnet(UnetSettings(down_dims=down_dims, condition_dim=540, heads=4), 14)
            )
            == published
        )


def test_outputs_equal_those_of_the_published_network() -> None:
    """Against stored outputs of `ConditionalUnet1D` of diffusion_policy with the same weights."""
    network = ConditionalUnet(
        UnetSettings(down_dims=(8, 16, 32), level_dim=8, condition_dim=6, heads=2), 3
    ).double()
    set_by_rule(network)
    noisy = torch.cos(torch.arange(2 * 8 * 3, dtype=torch.float64)).reshape(2, 8, 3)
    condition = torch.sin(torch.arange(12, dtype=torch.float64)).reshape(2, 6)
    found = network(noisy, torch.tensor([0.07, 0.93], dtype=torch.float64), condition)
    published = [
        [
            [1.2803857, 0.9353209, 0.1713882],
            [1.118381, 0.7953959, 0.1163507],
            [0.8039811, 0.6192899, 0.157587],
        ],
        [
            [1.4115269, 0.8651403, -0.0686124],
            [1.0588838, 0.8330096, 0.2341917],
            [0.7961486, 0.7288139, 0.3353056],
        ],
    ]
    torch.testing.assert_close(
        found[:, [0, 3, 7]], torch.tensor(published, dtype=torch.float64), rtol=0, atol=1e-5
    )


@torch.no_grad()
def set_by_rule(network: ConditionalUnet) -> None:
    """Sets all parameters to numbers that depend on their position in the network."""
    parts: list[nn.Module] = [network.embed_level]
    for stage, shrink in zip(network.down, [*network.shrink, nn.Identity()], strict=True):
        parts += [*blocks(stage), shrink]
    parts += blocks(network.middle)
    for stage, grow in zip(network.up, network.grow, strict=True):
        parts += [*blocks(stage), grow]
    parameters = [
        parameter for part in [*parts, network.read_action] for parameter in part.parameters()
    ]
    assert len(parameters) == len(list(network.parameters()))
    for number, parameter in enumerate(parameters):
        wave = torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) * 0.7 + number)
        parameter.copy_(
            (wave / math.sqrt(parameter[0].numel() if parameter.ndim > 1 else 1)).reshape(
                parameter.shape
            )
        )


def blocks(stage: nn.Module) -> list[nn.Module]:
    return [
        part for name in ("first", "second") for part in published_order(stage.get_submodule(name))
    ]


def published_order(block: nn.Module) -> list[nn.Module]:
    return [block.get_submodule(name) for name in ("first", "second", "modulation", "shortcut")]


def test_the_level_is_embedded_as_published() -> None:
    level = torch.tensor([[0.0, 0.07], [0.5, 1.0]], dtype=torch.float64)
    found = level_features(level, 8)
    assert found.shape == (2, 2, 8)
    for place in range(4):
        phase = 100 * level * 10000 ** (-place / 3)
        torch.testing.assert_close(found[..., place], phase.sin(), rtol=0, atol=1e-5)
        torch.testing.assert_close(found[..., 4 + place], phase.cos(), rtol=0, atol=1e-5)


def test_draws_are_independent_of_each_other(denoiser: UnetDenoiser) -> None:
    """K samples together are the K samples one by one."""
    precomputed = denoiser.precompute(torch.randn(2, 7, 12))
    noisy, level = torch.randn(2, 3, 8, 5), torch.rand(2, 3)
    together = denoiser(noisy, level, precomputed)
    assert together.shape == noisy.shape
    for draw in range(3):
        alone = denoiser(noisy[:, draw : draw + 1], level[:, draw : draw + 1], precomputed)
        torch.testing.assert_close(together[:, draw : draw + 1], alone, atol=1e-5, rtol=1e-4)


def test_each_observation_and_level_affects_its_draws_only(denoiser: UnetDenoiser) -> None:
    conditioning, noisy, level = torch.randn(2, 7, 12), torch.randn(2, 3, 8, 5), torch.rand(2, 3)
    usual = denoiser(noisy, level, denoiser.precompute(conditioning))
    other_memory, other_level = conditioning.clone(), level.clone()
    other_memory[1, 2] += 1
    other_level[1, 2] = 1 - level[1, 2]
    moved = (
        (denoiser(noisy, level, denoiser.precompute(other_memory)) - usual).abs().amax(dim=(2, 3))
    )
    assert (moved[0] == 0).all()
    assert (moved[1] > 1e-4).all()
    moved = (
        (denoiser(noisy, other_level, denoiser.precompute(conditioning)) - usual)
        .abs()
        .amax(dim=(2, 3))
    )
    assert moved[1, 2] > 1e-4
    assert moved.flatten()[:-1].max() < 1e-6


def test_absent_tokens_have_no_effect(denoiser: UnetDenoiser) -> None:
    conditioning, noisy, level = torch.randn(2, 7, 12), torch.randn(2, 3, 8, 5), torch.rand(2, 3)
    present = torch.tensor([True, False, True, True, False, True, True]).expand(2, 7)
    found = denoiser(noisy, level, denoiser.precompute(conditioning), present)
    torch.testing.assert_close(
        found,
        denoiser(noisy, level, denoiser.precompute(conditioning[:, present[0]])),
        atol=1e-5,
        rtol=1e-4,
    )
    changed = torch.where(present[..., None], conditioning, 100.0)
    torch.testing.assert_close(
        found, denoiser(noisy, level, denoiser.precompute(changed), present), atol=1e-5, rtol=1e-4
    )


def test_a_single_conditioning_token_is_mapped_linearly(denoiser: UnetDenoiser) -> None:
    conditioning = torch.randn(3, 1, 12)
    assert denoiser.conditioning_kv is not None
    value = denoiser.conditioning_kv(conditioning)[:, 0, 24:]
    torch.testing.assert_close(denoiser.pool(denoiser.precompute(conditioning)), value)


def test_without_pooling_the_only_token_is_the_condition() -> None:
    """As published: the network has no other parameters than the U-Net."""
    plain = UnetDenoiser(
        replace(SMALL, condition_dim=None), action_dim=5, chunk=8, conditioning_dim=10
    )
    assert sized(plain) == sized(plain.network)
    noisy, level, token = torch.randn(2, 3, 8, 5), torch.rand(2, 3), torch.randn(2, 1, 10)
    found = plain(noisy, level, plain.precompute(token))
    expected = plain.network(noisy[:, 1], level[:, 1], token[:, 0])
    torch.testing.assert_close(found[:, 1], expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match=r"2 tokens; allowed .*condition_dim=null: one"):
        plain.precompute(torch.randn(2, 2, 10))
    with pytest.raises(ValueError, match="condition_dim"):
        ConditionalUnet(replace(SMALL, condition_dim=None), 5)


def test_every_parameter_learns(denoiser: UnetDenoiser) -> None:
    denoiser(
        torch.randn(2, 3, 8, 5), torch.rand(2, 3), denoiser.precompute(torch.randn(2, 7, 12))
    ).square().sum().backward()
    for name, parameter in denoiser.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.slow
def test_the_unet_learns_chunks_that_depend_on_the_observation(denoiser: UnetDenoiser) -> None:
    generator = torch.Generator().manual_seed(0)
    conditioning = torch.randn(8, 4, 12, generator=generator)
    clean = conditioning[:, 1, :5, None].mT.expand(8, 8, 5)[:, None]
    optimizer = torch.optim.AdamW(denoiser.parameters(), 3e-3)
    losses: list[float] = []
    for _ in range(70):
        noise, level = (
            torch.randn(clean.shape, generator=generator),
            torch.rand(8, 1, generator=generator),
        )
        noisy = torch.lerp(clean, noise, level[..., None, None])
        loss = (denoiser(noisy, level, denoiser.precompute(conditioning)) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.25 * sum(losses[:5])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": 5}, "condition_dim is 24; allowed: multiples of heads = 5."),
        (
            {"down_dims": (16, 36)},
            r"down_dims is \[16, 36\]; allowed: at least two multiples of groups = 8.",
        ),
        ({"down_dims": (16,)}, r"down_dims is \[16\]; allowed: at least two"),
        ({"kernel": 4}, "kernel is 4; allowed: odd numbers."),
        ({"level_dim": 7}, "level_dim is 7; allowed: even numbers from 4."),
    ],
)
def test_invalid_sizes_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **wrong)


def test_a_chunk_of_unsuitable_length_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"chunk is 10; allowed for 3 levels: multiples of 4\."):
        UnetDenoiser(SMALL, action_dim=5, chunk=10, conditioning_dim=12)


def test_the_unet_computes_in_bfloat16(denoiser: UnetDenoiser) -> None:
    noisy, level, conditioning = (
        torch.randn(2, 3, 8, 5),
        torch.rand(2, 3),
        torch.randn(2, 7, 12),
    )
    expected: Tensor = denoiser(noisy, level, denoiser.precompute(conditioning))
    with torch.autocast("cpu", torch.bfloat16):
        found: Tensor = denoiser(
            noisy, level, denoiser.precompute(conditioning), torch.ones(2, 7, dtype=torch.bool)
        )
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()
