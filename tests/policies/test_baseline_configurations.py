"""The baselines' configurations build policies for ALOHA with every observation encoder."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from torch import Tensor

from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.act import ActPolicy
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.diffusion import DiffusionPolicy
from stringline.policies.checkpoints.load import build_policy
from stringline.policies.networks.unet import UnetDenoiser
from stringline.policies.observation.observation_encoder import ObservationEncoder

ROOT = Path(__file__).parents[2]
ENCODERS = sorted(
    {*choice_names(CONFIGS, "policy/observation_encoder")}
    - {"points"}  # Its scenes need points: tests/policies/observation.
)
NETWORK = (
    "+policy.observation_encoder.network.options={channels: [8, 8, 16, 16], layers: [1, 1, 1, 1]}"
)
SMALL_ENCODERS = {
    "dp3": [
        "policy.observation_encoder.clouds.points=32",
        "policy.observation_encoder.workspace=[[-2,-2,-2],[2,2,2]]",
        "policy.observation_encoder.state=joints",
        "policy.observation_encoder.previous_steps=0",
    ],
    "places": ["policy.observation_encoder.dim=32", "policy.observation_encoder.depth=1"],
    "resnet18": ["policy.observation_encoder.dim=32", NETWORK],
    "resnet18_keypoints": [NETWORK],
    "pretrained": ["policy.observation_encoder.dim=32", "policy.observation_encoder.depth=1"],
    "vit": ["policy.observation_encoder.dim=32", "policy.observation_encoder.depth=1"],
}
SMALL_POLICY = {
    "act": ["policy.dim=32", "policy.heads=2", "policy.feed_forward=64", "policy.encoder_layers=1"],
    "diffusion": ["policy.dim=32", "policy.depth=1", "policy.sampling_steps=2"],
    "diffusion_unet": [
        "policy.denoiser.down_dims=[16,32]",
        "policy.denoiser.groups=4",
        "policy.sampling_steps=2",
    ],
}
Build = Callable[..., ChunkPolicy]


@pytest.fixture
def build(contract: Contract, statistics: Statistics) -> Build:
    def make(*overrides: str) -> ChunkPolicy:
        with initialize_config_module("stringline.configs", version_base="1.3"):
            chosen = [
                "+encoder=cayley",
                "+coordinates=metric",
                "+depth=colours",
                "policy.chunk=8",
                *overrides,
            ]
            composed = compose(overrides=chosen)
        model = OmegaConf.to_container(composed.policy, resolve=True)
        assert isinstance(model, dict)
        torch.manual_seed(0)
        plain = {str(key): value for key, value in model.items()}
        built = build_policy(plain, contract, statistics)
        assert isinstance(built, ChunkPolicy)
        return built

    return make


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("policy", SMALL_POLICY)
def test_each_policy_learns_and_acts_with_each_encoder(
    build: Build, make_batch: Callable[[int], dict[str, Tensor]], policy: str, encoder: str
) -> None:
    made = build(
        f"+policy={policy}",
        f"policy/observation_encoder={encoder}",
        *SMALL_POLICY[policy],
        *SMALL_ENCODERS[encoder],
        "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]",
    ).train()
    batch = make_batch(2)
    made.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert [name for name, parameter in made.named_parameters() if parameter.grad is None] == []
    assert made.eval().predict(batch, torch.Generator().manual_seed(0)).shape == (2, 8, 14)
    assert [camera.name for camera in made.contract.cameras] == [
        "overhead",
        "wrist_left",
        "wrist_right",
    ]


def test_the_defaults_are_the_published_settings(build: Build) -> None:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        act = compose(overrides=["+policy=act"]).policy
        unet = compose(overrides=["+policy=diffusion_unet"]).policy
    assert (act.chunk, act.dim, act.heads, act.feed_forward, act.latent, act.kl_weight) == (
        100,
        512,
        8,
        3200,
        32,
        10,
    )
    assert (
        act.encoder_layers,
        act.decoder_layers,
        act.dropout,
        act.observation_encoder.network.name,
    ) == (
        4,
        1,
        0.1,
        "resnet18",
    )
    sizes = unet.denoiser
    assert (list(sizes.down_dims), sizes.kernel, sizes.groups, sizes.level_dim) == (
        [512, 1024, 2048],
        5,
        8,
        128,
    )
    assert (
        unet.observation_encoder.points,
        unet.observation_encoder.features,
        unet.observation_encoder.shared,
    ) == (32, 64, False)


def test_command_lines_that_name_the_default_encoder_stay_valid(build: Build) -> None:
    made = build(
        "+policy=diffusion",
        "policy.observation_encoder.dim=32",
        "policy.observation_encoder.depth=1",
        "policy.observation_encoder.cameras=[wrist_left]",
    )
    assert isinstance(made.observation_encoder, ObservationEncoder)
    assert made.observation_encoder.dim == 32


def test_configurations_build_the_named_classes(build: Build) -> None:
    assert isinstance(
        build("+policy=act", *SMALL_POLICY["act"], *SMALL_ENCODERS["resnet18"]), ActPolicy
    )
    unet = build(
        "+policy=diffusion_unet",
        *SMALL_POLICY["diffusion_unet"],
        *SMALL_ENCODERS["resnet18_keypoints"],
    )
    assert isinstance(unet, DiffusionPolicy)
    assert isinstance(unet.denoiser, UnetDenoiser)


@pytest.mark.parametrize(
    "overrides",
    [
        (
            "+policy=diffusion_unet",
            "policy.prediction=epsilon",
            "policy.spacing=leading",
            *SMALL_POLICY["diffusion_unet"],
        ),
        (
            "+policy=flow",
            "policy/observation_encoder=resnet18_keypoints",
            (
                "+policy.denoiser={_target_: stringline.UnetDenoiser, _partial_: true, down_dims: "
                "[16, 32]}"
            ),
        ),
    ],
    ids=["noise", "flow"],
)
def test_the_network_serves_other_generators(
    build: Build, make_batch: Callable[[int], dict[str, Tensor]], overrides: tuple[str, ...]
) -> None:
    made, batch = build(*overrides, NETWORK, "policy.sampling_steps=16").train(), make_batch(2)
    made.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert [name for name, parameter in made.named_parameters() if parameter.grad is None] == []
    assert made.eval().predict(batch, torch.Generator().manual_seed(0)).isfinite().all()
