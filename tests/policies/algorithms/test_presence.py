"""A camera that an example lacks: plans equal those of a policy without that camera."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.coordinates.coordinates import MetricPlaces, MissingDepth
from stringline.encoders.positions.rotary import CayleyString
from stringline.encoders.vision.attention import LinearAttention, PositionalAttention
from stringline.encoders.vision.patches import DepthInput, SurfaceNormals
from stringline.encoders.vision.rgbd import RgbdTokens
from stringline.encoders.vision.vit import AttentionFactory, VisionTransformer
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.diffusion import DiffusionPolicy
from stringline.policies.observation.observation_encoder import ObservationEncoder
from stringline.policies.observation.observation_settings import ObservationSettings

Observe = Callable[[int], dict[str, Array]]
NAMES = ("overhead", "wrist_left", "wrist_right")


@pytest.fixture
def batch(observe: Observe) -> dict[str, Tensor]:
    """Three examples in double precision."""
    observations = [observe(seed) for seed in range(3)]
    stacked = {
        key: torch.from_numpy(np.stack([each[key] for each in observations]))
        for key in observations[0]
    }
    return {
        key: value.double() if value.is_floating_point() else value
        for key, value in stacked.items()
    }


def conditioning_of(
    cameras: tuple[str, ...],
    contract: Contract,
    statistics: Statistics,
    depth: DepthInput | None = None,
) -> ObservationEncoder:
    torch.manual_seed(0)
    settings = ObservationSettings(
        encoding=partial(CayleyString, wavelengths=(0.04, 2.0)),
        coordinates=MetricPlaces(),
        depth_input=depth,
        cameras=cameras,
        dim=32,
        depth=2,
        heads=2,
    )
    conditioning = ObservationEncoder(settings, contract, statistics).double()
    with torch.no_grad():
        for parameter in conditioning.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return conditioning


def without_its_camera(whole: ObservationEncoder, fewer: ObservationEncoder) -> None:
    """Gives `fewer` the weights of `whole`."""
    rows = [whole.tokenise.cameras.index(camera) for camera in fewer.tokenise.cameras]
    weights = whole.state_dict()
    weights["tokenise.camera_mark"] = weights["tokenise.camera_mark"][rows]
    fewer.load_state_dict(weights)


@pytest.mark.parametrize("depth", [None, SurfaceNormals()])
@pytest.mark.parametrize("absent", NAMES)
def test_tokens_with_an_absent_camera_equal_those_without_it(
    absent: str,
    depth: DepthInput | None,
    contract: Contract,
    statistics: Statistics,
    batch: dict[str, Tensor],
) -> None:
    """For any content of its images; the other examples of the batch keep it."""
    whole = conditioning_of(NAMES, contract, statistics, depth)
    fewer = conditioning_of(
        tuple(name for name in NAMES if name != absent), contract, statistics, depth
    )
    without_its_camera(whole, fewer)
    present = torch.tensor([True, False, True])
    found = whole({**batch, f"present/{absent}": present})
    expected, usual = fewer(batch), whole(batch)
    assert found.present is not None
    assert expected.present is not None
    assert usual.present is not None
    without = expected.tokens[1][expected.present[1]]
    assert torch.equal(found.present[present], usual.present[present])
    torch.testing.assert_close(found.tokens[1][found.present[1]], without, rtol=0, atol=1e-9)
    there = found.present[present]
    torch.testing.assert_close(
        found.tokens[present][there], usual.tokens[present][there], rtol=0, atol=1e-9
    )
    assert (usual.tokens[1][found.present[1]] - without).abs().max() > 1e-4, (
        "the camera matters when it is there"
    )
    empty = {f"{kind}/{absent}": batch[f"{kind}/{absent}"].clone() for kind in ("rgb", "depth")}
    for image in empty.values():
        image[1].zero_()
    other = whole({**batch, **empty, f"present/{absent}": present})
    torch.testing.assert_close(other.tokens[1][found.present[1]], without, rtol=0, atol=1e-9)


def test_plans_with_an_absent_camera_equal_those_without_it(
    make_policy: Callable[..., ChunkPolicy], batch: dict[str, Tensor]
) -> None:
    """The denoiser attends to present tokens only, so an absent image has no effect."""
    policy = make_policy().double()
    assert isinstance(policy, DiffusionPolicy)
    lacking = {**batch, "present/wrist_left": torch.tensor([True, False, False])}
    changed = {
        **lacking,
        "rgb/wrist_left": batch["rgb/wrist_left"].flip(0),
        "depth/wrist_left": batch["depth/wrist_left"].flip(0),
    }
    conditioning, other = policy.observation_encoder(lacking), policy.observation_encoder(changed)
    assert conditioning.present is not None
    noisy, level = (
        torch.randn(3, 2, 8, 14, dtype=torch.float64),
        torch.rand(3, 2, dtype=torch.float64),
    )

    state = conditioning.state
    assert state is not None
    precompute: Any = policy.denoiser.precompute

    def answer(tokens: Tensor, present: Tensor | None) -> Tensor:
        found: Tensor = policy.denoiser(
            noisy[: len(tokens)],
            level[: len(tokens)],
            precompute(tokens, state[: len(tokens)]),
            present,
        )
        return found

    first = answer(conditioning.tokens, conditioning.present)
    torch.testing.assert_close(
        answer(other.tokens, other.present)[1:], first[1:], rtol=0, atol=1e-9
    )
    kept = conditioning.tokens[1:2, conditioning.present[1]]
    both = policy.denoiser(noisy[1:2], level[1:2], precompute(kept, state[1:2]))
    torch.testing.assert_close(both, first[1:2], rtol=0, atol=1e-9)


@pytest.mark.parametrize("missing", get_args(MissingDepth))
def test_excluded_patches_without_depth_have_no_effect(
    make_policy: Callable[..., ChunkPolicy], batch: dict[str, Tensor], missing: MissingDepth
) -> None:
    """Of an image whose other patches have depth; an image without any depth stays visible."""
    # The patches of this embedding do not overlap.
    single = "{_target_: stringline.PatchProjection, _partial_: true, patch: 16}"
    policy = make_policy(
        f"coordinates.places.missing_depth={missing}",
        f"+policy.observation_encoder.embedding={single}",
    ).double()

    def plan(seen: dict[str, Tensor]) -> Tensor:
        return policy.predict(seen, torch.Generator().manual_seed(0))

    hole = batch["rgb/overhead"].clone()
    assert not batch["depth/overhead"][:, :16, :16].any()
    hole[:, :16, :16] = 255 - hole[:, :16, :16]
    changed = (plan({**batch, "rgb/overhead": hole}) - plan(batch)).abs().amax(dim=(1, 2))
    assert (changed < 1e-9).all() if missing == "exclude" else (changed > 1e-6).all()
    blind = {**batch, "depth/overhead": torch.zeros_like(batch["depth/overhead"])}
    turned = {**blind, "rgb/overhead": batch["rgb/overhead"].flip(0)}
    assert (plan(blind) - plan(turned))[0].abs().max() > 1e-6


def test_gradients_are_finite_and_zero_for_absent_images(
    make_policy: Callable[..., ChunkPolicy], make_batch: Callable[[int], dict[str, Tensor]]
) -> None:
    policy = make_policy().train()
    absent = {f"present/{name}": torch.zeros(2, dtype=torch.bool) for name in NAMES[1:]}
    policy.loss({**make_batch(2), **absent}).backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    assert isinstance(policy.observation_encoder, ObservationEncoder)
    tokenise = policy.observation_encoder.tokenise
    assert isinstance(tokenise, RgbdTokens)
    marks = tokenise.camera_mark.grad
    assert marks is not None
    assert marks[0].abs().max() > 0
    assert marks[1:].abs().max() == 0


@pytest.mark.parametrize("registers", [0, 2])
@pytest.mark.parametrize("linear", [False, True])
def test_blocks_of_both_attentions_ignore_absent_tokens(registers: int, linear: bool) -> None:
    """Compared to the same tokens without them, for any content and order."""
    attention: AttentionFactory = LinearAttention if linear else PositionalAttention
    torch.manual_seed(0)
    blocks = VisionTransformer(
        CayleyString(heads=2, head_dim=16, axes=3, wavelengths=(0.1, 2.0)),
        32,
        2,
        registers=registers,
        attention=attention,
    ).double()
    x, coordinates = (
        torch.randn(2, 9, 32, dtype=torch.float64),
        torch.rand(2, 9, 3, dtype=torch.float64),
    )
    has_position = torch.tensor([True] * 7 + [False] * 2).expand(2, 9)
    present = torch.tensor([True, False, True, False, True, True, True, True, False]).expand(2, 9)
    there = present[0]
    found = blocks(x, coordinates, has_position, present)[:, there]
    expected = blocks(x[:, there], coordinates[:, there], has_position[:, there])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
