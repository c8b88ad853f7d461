"""Every choice of the configuration files builds a policy that trains and plans."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.coordinates.coordinates import MetricPlaces
from stringline.encoders.positions.rotary import CayleyString
from stringline.encoders.vision.patches import ColourOnly
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.checkpoints.load import build_policy
from stringline.policies.observation.observation_encoder import ObservationEncoder
from stringline.policies.observation.observation_settings import ObservationSettings

ROOT = Path(__file__).parents[2]


def _names(group: str) -> list[str]:
    return choice_names(CONFIGS, group)


@pytest.mark.parametrize(
    ("encoder", "coordinates"),
    [(name, "metric") for name in _names("encoder")]
    + [("none", "patch_depth"), ("circulant", "grid")],
)
def test_every_encoder_with_every_kind_of_place(
    make_policy: Callable[..., ChunkPolicy],
    make_batch: Callable[[int], dict[str, Tensor]],
    encoder: str,
    coordinates: str,
) -> None:
    small = {
        "circulant": 4,
        "comrope_ap": 2,
        "comrope_ld": 2,
    }  # The small policy has heads of 8 channels.
    blocks = [f"encoder.encoding.block={small[encoder]}"] if encoder in small else []
    policy = make_policy(f"+encoder={encoder}", f"+coordinates={coordinates}", *blocks).train()
    batch = make_batch(2)
    loss = policy.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    without = {
        name.rpartition(".")[2]
        for name, parameter in policy.named_parameters()
        if parameter.grad is None
    }
    # Places are not read without an encoding, so the learned map from depth to a place stays
    # unchanged.
    assert without == (
        {"slope", "offset"} if (encoder, coordinates) == ("none", "patch_depth") else set()
    )
    assert policy.predict(batch, torch.Generator().manual_seed(0)).isfinite().all()


@pytest.mark.parametrize(
    ("depth", "coordinates"),
    [("normals", name) for name in _names("coordinates")]
    + [(name, "metric") for name in ("colours", "channel")],
)
def test_every_use_of_depth_with_every_kind_of_place(
    make_policy: Callable[..., ChunkPolicy],
    make_batch: Callable[[int], dict[str, Tensor]],
    depth: str,
    coordinates: str,
) -> None:
    stem = (
        "+policy.observation_encoder.embedding="
        "{_target_: stringline.PatchProjection, _partial_: true, patch: 8}"
    )
    policy = make_policy(f"+coordinates={coordinates}", f"+depth={depth}", stem).train()
    batch = make_batch(2)
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert policy.observation_encoder(batch).tokens.shape == (2, 3 * 16 + 2, 32)


@pytest.mark.parametrize("policy", ["diffusion", "flow", "energy"])
def test_unknown_arguments_are_named(
    configuration: Callable[..., dict[str, object]],
    contract: Contract,
    statistics: Statistics,
    policy: str,
) -> None:
    """The message lists all arguments: the fields of the settings, also inherited ones."""
    model = configuration(f"+policy={policy}")
    with pytest.raises(
        ValueError,
        match=(
            r"'chunck'. Its arguments: observation_encoder, chunk, .*, dim, depth, "
            r".*sampling_steps, noise_samples"
        ),
    ):
        build_policy(model | {"chunck": 8}, contract, statistics)
    with pytest.raises(
        ValueError,
        match=r"unexpected keyword argument 'contract'. Its arguments: observation_encoder",
    ):
        build_policy(model | {"contract": None}, contract, statistics)
    del model["observation_encoder"]
    with pytest.raises(
        ValueError,
        match=(
            r"Policy: missing a required .*argument: 'observation_encoder'. "
            r"Its arguments: observation_encoder"
        ),
    ):
        build_policy(model, contract, statistics)


def test_missing_arguments_of_an_encoder_are_named_in_its_configuration(
    configuration: Callable[..., dict[str, object]], contract: Contract, statistics: Statistics
) -> None:
    """Without any data."""
    model = configuration()
    encoder = model["observation_encoder"]
    assert isinstance(encoder, dict)
    del encoder["encoding"]
    with pytest.raises(
        ValueError,
        match=r"ObservationEncoder: missing a required .*argument: 'encoding'. Its arguments: cam",
    ):
        build_policy(model, contract, statistics)


def test_settings_in_python_equal_those_of_the_configuration(
    contract: Contract, statistics: Statistics, make_policy: Callable[..., ChunkPolicy]
) -> None:
    """A policy built of settings in Python has the weights of that of the configuration."""
    torch.manual_seed(0)
    encoder_settings = ObservationSettings(
        cameras=("overhead", "wrist_left", "wrist_right"),
        encoding=partial(CayleyString, share_heads=True, wavelengths=(0.04, 2.0)),
        coordinates=MetricPlaces(),
        depth_input=ColourOnly(),
        dim=32,
        depth=2,
        joints="condition",
        joint_dropout=0.5,
    )
    settings = DiffusionSettings(
        observation_encoder=partial(ObservationEncoder, encoder_settings),
        chunk=8,
        dim=32,
        depth=1,
        noise_samples=2,
        sampling_steps=3,
    )
    by_hand = DiffusionPolicy(settings, contract, statistics)
    with torch.no_grad():
        for parameter in by_hand.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    found, expected = by_hand.state_dict(), make_policy().state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
