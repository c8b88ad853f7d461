"""What `training.py` measures: the recipe of a policy, its data and its device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from random_windows import RandomWindows

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import build_policy

CHUNK = 48
SMALL = {
    "diffusion_unet": ("policy.denoiser.down_dims=[16,32]", "policy.denoiser.condition_dim=16"),
    "act": ("policy.dim=32", "policy.feed_forward=64", "policy.encoder_layers=1"),
}


@dataclass(frozen=True)
class Setting:
    """Size and device of a measurement, and the preset of the trainer."""

    batch: int
    image_size: int
    device: str
    small: bool
    trainer: str = "laptop"

    def settings(self, policy: str, *overrides: str) -> dict[str, Any]:
        """Returns the configuration of the recipe with a policy."""
        smaller = SMALL.get(policy, ()) if self.small else ()
        chosen = [f"policy={policy}", f"policy.chunk={CHUNK}", "encoder=cayley"]
        chosen += [f"trainer={self.trainer}", "dataset.path=none", *smaller, *overrides]
        folder = (Path(stringline.__file__).parent / "configs").absolute()
        settings = OmegaConf.to_container(
            Configuration(folder, "train", "training.py").composed(chosen), resolve=True
        )
        assert isinstance(settings, dict)
        return {str(key): value for key, value in settings.items()}

    def windows(self) -> RandomWindows:
        """Returns the data."""
        return RandomWindows(4 * self.batch, CHUNK, self.image_size)

    def policy(self, name: str, windows: RandomWindows) -> ChunkPolicy:
        """Builds a policy, untrained."""
        torch.manual_seed(0)
        return build_policy(
            self.settings(name)["policy"], windows.contract, windows.statistics()
        ).to(self.device)
