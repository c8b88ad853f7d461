"""A small policy over small images, built as the configuration files build it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.policies.demonstrations import CONTRACT, make_store

from stringline import ALOHA, Camera, ChunkPolicy, Contract, EpisodeStore
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.checkpoints.load import add_action_statistics, build_policy

SMALL = (
    "policy.dim=32",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=2",
    "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]",
    "policy.chunk=8",
    "policy.noise_samples=2",
    "policy.sampling_steps=3",
    "policy.posture=null",  # Generated numbers are then normalised actions; see test_posture.py.
)


def model_configuration(*overrides: str) -> dict[str, object]:
    """Composes the model's configuration from the shipped files."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = ["+policy=diffusion", "+encoder=cayley", "+coordinates=metric", "+depth=colours"]
        swapped = [override for override in overrides if override.startswith("+")]
        chosen = [
            one
            for one in chosen
            if one.split("=")[0] not in {other.split("=")[0] for other in swapped}
        ]
        composed = compose(overrides=[*chosen, *SMALL, *overrides])
    model = OmegaConf.to_container(composed.policy, resolve=True)
    assert isinstance(model, dict)
    return {str(key): value for key, value in model.items()}


def observation(seed: int, contract: Contract) -> dict[str, Array]:
    """Draws an observation of the contract with holes in its depth."""
    body = EMBODIMENTS[contract.embodiment]
    random = np.random.default_rng(seed)
    q = random.uniform(body.lower, body.upper) * 0.3
    drawn: dict[str, Array] = {
        "time": np.asarray(1.0 + seed),
        "joints/position": q.astype(np.float32),
    }
    drawn |= {
        f"T_base_gripper/{arm}": T.astype(np.float32)
        for arm, T in body.forward_kinematics(q).items()
    }
    poses = body.camera_poses(q)
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        depth = random.integers(300, 1200, size)
        depth[:16, :16] = 0
        drawn[f"rgb/{camera.name}"] = random.integers(0, 256, (*size, 3)).astype(np.uint8)
        drawn[f"depth/{camera.name}"] = depth.astype(np.uint16)
        drawn[f"time/{camera.name}"] = np.asarray(1.0 + seed)
        drawn[f"intrinsics/{camera.name}"] = np.array(
            [[40, 0, 16], [0, 40, 16], [0, 0, 1]], np.float32
        )
        drawn[f"T_base_camera/{camera.name}"] = poses[camera.name].astype(np.float32)
    return drawn


def batch_of(
    observations: list[dict[str, Array]], chunk: int, actions: int
) -> dict[str, torch.Tensor]:
    """Stacks observations and adds random actions."""
    batch = {
        key: torch.from_numpy(np.stack([each[key] for each in observations]))
        for key in observations[0]
    }
    generator = torch.Generator().manual_seed(0)
    batch["action"] = torch.rand(len(observations), chunk, actions, generator=generator)
    batch["action_mask"] = torch.ones(len(observations), chunk, dtype=torch.bool)
    return batch


@pytest.fixture
def contract() -> Contract:
    return ALOHA.contract(
        [
            Camera(name, 32, 32, "simulated")
            for name in ("overhead", "wrist_left", "wrist_right", "table")
        ],
        50.0,
    )


@pytest.fixture
def statistics() -> Statistics:
    rows = np.stack([ALOHA.lower, ALOHA.upper])
    return Statistics(
        {key: statistics_of(lambda: iter([rows])) for key in ("action", "joints/position")}
    )


@pytest.fixture
def make_policy(contract: Contract, statistics: Statistics) -> Callable[..., ChunkPolicy]:
    def make(*overrides: str) -> ChunkPolicy:
        torch.manual_seed(0)
        built = build_policy(model_configuration(*overrides), contract, statistics)
        assert isinstance(built, ChunkPolicy)
        # The last layers start at zero; an untrained policy would hide every difference.
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return built.eval()

    return make


@pytest.fixture
def configuration() -> Callable[..., dict[str, object]]:
    return model_configuration


@pytest.fixture
def observe(contract: Contract) -> Callable[[int], dict[str, Array]]:
    return lambda seed: observation(seed, contract)


@pytest.fixture
def make_batch(
    observe: Callable[[int], dict[str, Array]], contract: Contract
) -> Callable[[int], dict[str, torch.Tensor]]:
    return lambda count: batch_of([observe(seed) for seed in range(count)], 8, len(contract.action))


@pytest.fixture(scope="session")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return make_store(tmp_path_factory.mktemp("demonstrations") / "store")


@pytest.fixture(scope="session")
def measured(demonstrations: EpisodeStore) -> Statistics:
    return Statistics.of_episodes(demonstrations.episodes())


@pytest.fixture
def of_demonstrations(
    demonstrations: EpisodeStore, measured: Statistics
) -> Callable[..., ChunkPolicy]:
    """Builds a policy for the demonstrations, with weights for which all inputs have an effect."""

    def make(*overrides: str) -> ChunkPolicy:
        model = model_configuration(*overrides)
        episodes = [demonstrations.episode(name) for name in demonstrations.names()]
        statistics = add_action_statistics(measured, model, CONTRACT, episodes)
        torch.manual_seed(0)
        built = build_policy(model, CONTRACT, statistics)
        assert isinstance(built, ChunkPolicy)
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return built.eval()

    return make
