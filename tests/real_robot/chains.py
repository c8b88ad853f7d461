"""Small chains of `stringline-demo`: its settings, and the chain of a task."""

from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.real_robot.showcase.demo_chain import DemoChain
from stringline.real_robot.showcase.demo_settings import DemoSettings

SMALL = [
    "expert_trials=1",
    "episodes=2",
    "trials=1",
    "emulated_trials=1",
    "workers=1",
    "rendering=fast",
    "task.image_size=32",
    "task.time_limit_s=9.5",
    "trainer.steps=3",
    "trainer.batch_size=2",
    "policy.observation_encoder.dim=48",
    "policy.observation_encoder.depth=1",
    "policy.observation_encoder.voxels.tokens=24",
]


def settings(output: Path, *changes: str) -> DemoSettings:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = compose("demo", overrides=[f"output={output}", *SMALL, *changes])
        plain = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(plain, dict)
    return DemoSettings.of({str(key): value for key, value in plain.items()})


def chain(output: Path, *changes: str) -> DemoChain:
    return DemoChain(settings(output, *changes))
