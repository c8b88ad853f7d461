"""A deployment on emulated arms in real time: its settings, its policy and its emulator."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import Observation
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk, Policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.emulated_evaluation.real_time_runner import real_time_emulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.robots.robot_factory import RobotFactory


class Swing:
    """A policy without images: joints swing about home, some beyond their speed limit."""

    def __init__(self, embodiment: Embodiment) -> None:
        self._embodiment = embodiment
        self.contract = embodiment.contract([], 50.0)

    def session(self, seed: int) -> "Swing":
        """Returns itself, since it has no state."""
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the actions of the next second."""
        due = float(observation["time"]) + 0.02 * np.arange(48, dtype=np.float64)
        hz = 0.2 + 0.15 * np.arange(len(self._embodiment.joints))
        way = self._embodiment.home + 0.4 * np.sin(2 * np.pi * np.outer(due, hz))
        return ActionChunk(
            due, np.clip(way, self._embodiment.lower, self._embodiment.upper).astype(np.float32)
        )


def deployment_settings(overrides: Sequence[str]) -> DeploymentSettings:
    """Returns the settings of `stringline-deploy` in real time."""
    # Spawned processes import this module, but need none of these libraries.
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("stringline.configs", version_base="1.3"):
        config = compose("deploy", overrides=["robot.lock_step=false", *overrides])
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return DeploymentSettings.of({str(key): value for key, value in plain.items()})


@contextmanager
def open_actor(
    settings: DeploymentSettings, folder: Path, *, swing: bool
) -> Iterator[tuple[Policy, Emulator]]:
    """Yields the policy and the emulator of its arms, which is not started yet."""
    if swing:
        backend = RobotFactory(settings.robot).backend
        given = settings.robot.emulator or {}
        chosen = {name: given[name] for name in ("t1_unlimited",) if name in given}
        yield Swing(backend.embodiment), backend.bare_emulator(capture=folder, **chosen)
        return
    import torch

    from stringline.policies.checkpoints.load import open_policy

    torch.set_num_threads(1)
    policy, _ = open_policy(settings.checkpoint)
    yield policy, real_time_emulator(settings, policy, folder)
