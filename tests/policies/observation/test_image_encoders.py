"""Observation encoders without positions: what they read and ignore, and absent cameras."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.positions.absolute import SinusoidalEncoding
from stringline.encoders.pretrained.convolutional import ResNet
from stringline.encoders.pretrained.timm_models import import_timm
from stringline.policies.algorithms.act import ActPolicy, ActSettings
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.checkpoints.load import build_policy, load_policy, save_policy
from stringline.policies.networks.inputs import image_positions, sequence_positions
from stringline.policies.observation.image_encoders import (
    FeatureMapEncoder,
    ImageObservationEncoder,
    KeypointEncoder,
    PlainVisionEncoder,
    spatial_softmax,
)
from stringline.policies.observation.observation_settings import (
    FeatureMapSettings,
    KeypointSettings,
    PlainVisionSettings,
)

OPTIONS = {"channels": [8, 8, 16, 16], "layers": [1, 1, 1, 1]}
NETWORK = partial(ResNet, options=OPTIONS)
NAMES = ("overhead", "wrist_left", "wrist_right")
Settings = FeatureMapSettings | KeypointSettings | PlainVisionSettings
Make = Callable[..., ImageObservationEncoder]
Observe = Callable[[int], dict[str, Array]]
FEATURE_MAP = FeatureMapSettings(network=NETWORK, dim=32)
KEYPOINTS = KeypointSettings(network=NETWORK, points=4, features=6)
PLAIN = PlainVisionSettings(
    encoding=partial(SinusoidalEncoding, theta=10000.0), dim=32, depth=2, heads=4, grid=4
)
CHOICES: dict[str, Settings] = {"map": FEATURE_MAP, "keypoints": KEYPOINTS, "plain": PLAIN}
KINDS: dict[type[Settings], type[ImageObservationEncoder]] = {
    FeatureMapSettings: FeatureMapEncoder,
    KeypointSettings: KeypointEncoder,
    PlainVisionSettings: PlainVisionEncoder,
}


@pytest.fixture(params=list(CHOICES))
def settings(request: pytest.FixtureRequest) -> Settings:
    return CHOICES[request.param]


@pytest.fixture
def make(contract: Contract, statistics: Statistics) -> Callable[..., ImageObservationEncoder]:
    def made(
        settings: Settings, cameras: tuple[str, ...] | None = NAMES
    ) -> ImageObservationEncoder:
        torch.manual_seed(0)
        encoder = KINDS[type(settings)](replace(settings, cameras=cameras), contract, statistics)
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return encoder

    return made


@pytest.fixture
def batch(observe: Observe) -> dict[str, Tensor]:
    """Three examples with images of 64 pixels."""
    observations = [observe(seed) for seed in range(3)]
    stacked = {
        key: torch.from_numpy(np.stack([each[key] for each in observations]))
        for key in observations[0]
    }
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(
        0, 256, (len(NAMES), 3, 64, 64, 3), generator=generator, dtype=torch.uint8
    )
    return stacked | {f"rgb/{name}": each for name, each in zip(NAMES, images, strict=True)}


def test_only_colours_and_joints_are_read(
    make: Make, settings: Settings, batch: Mapping[str, Tensor]
) -> None:
    encoder = make(settings)
    assert encoder.keys == [
        "rgb/overhead",
        "rgb/wrist_left",
        "rgb/wrist_right",
        "joints/position",
    ]
    assert encoder.past_keys == []
    assert all(camera.depth is None and not camera.has_geometry for camera in encoder.cameras)
    usual = encoder(batch).tokens
    assert usual.shape[2] == encoder.dim
    assert torch.equal(encoder({key: batch[key] for key in encoder.keys}).tokens, usual)
    for key in encoder.keys:
        changed = {**batch, key: batch[key].flip(1)}
        assert (encoder(changed).tokens - usual).abs().max() > 1e-4, key


def test_one_token_for_each_cell_and_one_for_the_joints(
    make: Make, batch: Mapping[str, Tensor]
) -> None:
    assert make(FEATURE_MAP)(batch).tokens.shape == (3, 3 * 4 + 1, 32)
    assert make(PLAIN)(batch).tokens.shape == (3, 3 * 16 + 1, 32)
    assert make(KEYPOINTS)(batch).tokens.shape == (3, 1, 3 * 6 + 14)


@pytest.mark.parametrize("kind", ["map", "plain"])
@pytest.mark.parametrize("absent", NAMES)
def test_tokens_with_an_absent_camera_equal_those_without_it(
    make: Make, kind: str, absent: str, batch: dict[str, Tensor]
) -> None:
    others = tuple(name for name in NAMES if name != absent)
    whole, fewer = make(CHOICES[kind]), make(CHOICES[kind], others)
    weights, rows = whole.state_dict(), [NAMES.index(name) for name in others]
    mark = next(key for key in weights if key.endswith("camera_mark"))
    weights[mark] = weights[mark][rows]
    fewer.load_state_dict(weights)
    there = torch.tensor([True, False, True])
    black = batch[f"rgb/{absent}"] * there[:, None, None, None]
    found, other = (
        whole({**batch, f"rgb/{absent}": rgb, f"present/{absent}": there})
        for rgb in (batch[f"rgb/{absent}"], black)
    )
    usual, expected = whole(batch), fewer(batch)
    assert found.present is not None
    assert usual.present is None
    torch.testing.assert_close(
        found.tokens[1][found.present[1]], expected.tokens[1], atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(
        other.tokens[1][found.present[1]], expected.tokens[1], atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(found.tokens[there], usual.tokens[there], atol=1e-5, rtol=1e-4)
    assert found.present[there].all()


def test_an_absent_camera_has_no_key_points(make: Make, batch: dict[str, Tensor]) -> None:
    encoder = make(KEYPOINTS)
    there = torch.tensor([True, False, True])
    usual, found = (
        encoder(batch).tokens[:, 0],
        encoder({**batch, "present/wrist_left": there}).tokens[:, 0],
    )
    assert (found[1, 6:12] == 0).all()
    assert torch.equal(found[there], usual[there])
    assert torch.equal(found[1, 12:], usual[1, 12:])


def test_cameras_share_a_network_only_if_configured(make: Make) -> None:
    shared = make(FEATURE_MAP)
    own = make(replace(FEATURE_MAP, shared=False))
    assert isinstance(shared, FeatureMapEncoder)
    assert isinstance(own, FeatureMapEncoder)
    assert (len(shared.networks), len(own.networks)) == (1, 3)
    keypoints = make(KEYPOINTS)
    assert isinstance(keypoints, KeypointEncoder)
    assert len(keypoints.networks) == 3


def test_every_parameter_learns(
    make: Make, settings: Settings, batch: Mapping[str, Tensor]
) -> None:
    encoder = make(settings).train()
    encoder(batch).tokens.square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        unseen = name.startswith("locate") and name.endswith(
            "bias"
        )  # A constant that is added to all cells has no effect on a softmax.
        assert parameter.grad.abs().max() > 0 or unseen, name


def test_spatial_softmax_finds_the_peak() -> None:
    maps = torch.zeros(1, 3, 5, 9)
    maps[0, 0, 1, 6] = 100.0
    maps[0, 1, 4, 0] = 100.0
    found = spatial_softmax(maps)
    torch.testing.assert_close(
        found, torch.tensor([[0.5, -1.0, 0.0, -0.5, 1.0, 0.0]]), atol=1e-6, rtol=0
    )
    weights = torch.softmax(torch.arange(6.0), 0).reshape(2, 3)
    column, row = (
        (weights.sum(0) * torch.tensor([-1.0, 0.0, 1.0])).sum(),
        (weights.sum(1) * torch.tensor([-1.0, 1.0])).sum(),
    )
    torch.testing.assert_close(
        spatial_softmax(torch.arange(6.0).reshape(1, 1, 2, 3)), torch.stack((column, row))[None]
    )


def test_positions_are_the_published_ones() -> None:
    table = sequence_positions(7, 6)
    for position in range(7):
        for channel in range(6):
            phase = position / 10000 ** (2 * (channel // 2) / 6)
            assert table[position, channel] == pytest.approx(
                math.cos(phase) if channel % 2 else math.sin(phase), abs=1e-5
            )
    image = image_positions(2, 3, 8)
    for row in range(2):
        for column in range(3):
            for channel in range(4):
                wave, falling = (
                    (math.cos if channel % 2 else math.sin),
                    10000 ** (2 * (channel // 2) / 4),
                )
                down, right = (
                    2 * math.pi * (row + 1) / 2 / falling,
                    2 * math.pi * (column + 1) / 3 / falling,
                )
                assert image[row, column, channel] == pytest.approx(wave(down), abs=1e-5)
                assert image[row, column, 4 + channel] == pytest.approx(wave(right), abs=1e-5)
    with pytest.raises(
        ValueError, match="Positions in images have 6 channels; allowed: multiples of 4."
    ):
        image_positions(2, 2, 6)
    with pytest.raises(ValueError, match="Positions have 5 channels; allowed: even numbers."):
        sequence_positions(2, 5)


def test_invalid_settings_and_contracts_are_rejected(
    make: Make, settings: Settings, contract: Contract, batch: dict[str, Tensor]
) -> None:
    with pytest.raises(ValueError, match="no camera 'overhaed'. Did you mean 'overhead'"):
        make(settings, ("overhaed",))
    with pytest.raises(
        ValueError,
        match="needs images and joint positions; the contract has no cameras or no joints",
    ):
        make(settings, ())
    encoder = make(settings)
    for key in ("rgb/wrist_left", "joints/position"):
        with pytest.raises(ValueError, match=f"no observation key '{key}'"):
            encoder({other: value for other, value in batch.items() if other != key})
    with pytest.raises(ValueError, match="dim is 30"):
        replace(FEATURE_MAP, dim=30)
    with pytest.raises(ValueError, match="dim is 30 with 4 heads; allowed: multiples of 8."):
        replace(PLAIN, dim=30)


def test_a_checkpoint_is_independent_of_its_initial_weights(
    tmp_path: Path, contract: Contract, statistics: Statistics, observe: Observe
) -> None:
    file = tmp_path / "model.safetensors"
    save_file(
        import_timm().create_model("resnet18", zero_init_last=False, **OPTIONS).state_dict(), file
    )
    network = {"_target_": "stringline.ResNet", "_partial_": True, "options": OPTIONS}
    model = {
        "_target_": "stringline.ActPolicy",
        **{"chunk": 4, "dim": 32, "heads": 2, "feed_forward": 32, "encoder_layers": 1, "latent": 4},
        "observation_encoder": {
            "_target_": "stringline.FeatureMapEncoder",
            "_partial_": True,
            "cameras": ["overhead"],
            "dim": 32,
            "network": network | {"norm": "frozen", "weights": str(file)},
        },
    }
    policy = build_policy(model, contract, statistics).eval()
    before = policy.session(0).plan(observe(0)).action
    save_policy(tmp_path / "c", policy, model, {})
    file.unlink()
    again = load_policy(tmp_path / "c")
    assert np.array_equal(again.session(0).plan(observe(0)).action, before)
    assert again.contract.incompatibilities(ALOHA.contract(again.contract.cameras, 50.0)) == []
    with pytest.raises(ValueError, match="model.safetensors cannot be read"):
        build_policy(model, contract, statistics)


def test_a_policy_over_images_needs_no_depth(
    contract: Contract, statistics: Statistics, observe: Observe
) -> None:
    encoder = partial(FeatureMapEncoder, replace(FEATURE_MAP, cameras=("overhead",)))
    chosen = ActSettings(
        observation_encoder=encoder,
        chunk=4,
        dim=32,
        heads=2,
        feed_forward=32,
        encoder_layers=1,
    )
    policy = ActPolicy(chosen, contract, statistics).eval()
    seen = observe(0)
    for key in [key for key in seen if key.startswith(("depth/", "intrinsics/", "T_base_camera/"))]:
        del seen[key]
    assert policy.session(0).plan(seen).action.shape == (4, 14)


def test_attention_maps_need_positions(
    contract: Contract, statistics: Statistics, observe: Observe
) -> None:
    encoder = partial(PlainVisionEncoder, replace(PLAIN, cameras=("overhead",)))
    policy = DiffusionPolicy(
        DiffusionSettings(observation_encoder=encoder, chunk=4, dim=32), contract, statistics
    )
    assert policy.attention_map(observe(0)) is None
