"""An observation encoder of one's own: points of a depth image as tokens with Cayley-STRING.

    python examples/own_encoder.py                  # 5 demonstrations, 200 steps: a few minutes
    python examples/own_encoder.py --episodes 1 --steps 3 --output runs/short

Any policy can use such a class: the configuration names it as `module:Class`. A checkpoint with it
is loaded with `load_policy(path, trust=("own_encoder",))`, because loading runs its code.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from train import record

from stringline import (
    CayleyString,
    ConditioningTokens,
    PositionalAttention,
    Trainer,
    load_policy,
    train_policy,
)

CAMERA = "overhead"


class DepthPoints(nn.Module):
    """Tokens of every eighth pixel with depth, at its place in metres, and one of the joints."""

    history = None  # It reads the present observation only,
    instruction = None  # and no text.
    past_keys = ()
    keys = (
        *(f"{kind}/{CAMERA}" for kind in ("rgb", "depth", "intrinsics", "T_base_camera")),
        "joints/position",
    )

    def __init__(self, contract, statistics, *, dim: int = 64, heads: int = 4, depth: int = 2):
        super().__init__()
        self.dim = dim
        self.cameras = (contract.camera(CAMERA),)
        self.colour = nn.Linear(3, dim)
        self.joints = nn.Linear(len(contract.joints), dim)
        self.encoding = CayleyString(heads, dim // heads, axes=3, wavelengths=(0.04, 2.0))
        self.attention = nn.ModuleList(PositionalAttention(dim, heads) for _ in range(depth))
        self.norm = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch: (B, N, dim) tokens, of which those without depth are absent."""
        colours = observation[f"rgb/{CAMERA}"][:, 4::8, 4::8].float() / 255.0
        depth = observation[f"depth/{CAMERA}"][:, 4::8, 4::8].float()
        depth = depth * self.cameras[0].depth_unit_m
        places = self.places(depth, observation).flatten(1, 2)
        present = nn.functional.pad(depth.flatten(1) > 0, (0, 1), value=True)
        posture = self.joints(observation["joints/position"].float())[:, None]
        x = torch.cat([self.colour(colours).flatten(1, 2), posture], dim=1)
        # The token of the joints is at the origin, the base of the robot.
        prepared = self.encoding.prepare(nn.functional.pad(places, (0, 0, 0, 1)))
        for norm, attention in zip(self.norm, self.attention, strict=True):
            x = x + attention(norm(x), prepared, present=present)
        return ConditioningTokens(x, present)

    def places(self, depth: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the points (B, rows, columns, 3) of depths in metres, in the base frame."""
        rows, columns = (torch.arange(size) * 8 + 4.5 for size in depth.shape[1:])
        v, u = torch.meshgrid(rows, columns, indexing="ij")
        pixels = torch.stack([u, v, torch.ones_like(u)], dim=-1)
        inverse = torch.linalg.inv(observation[f"intrinsics/{CAMERA}"].float())
        camera = torch.einsum("bij,rcj->brci", inverse, pixels) * depth[..., None]
        T = observation[f"T_base_camera/{CAMERA}"].float()
        return torch.einsum("bij,brcj->brci", T[:, :3, :3], camera) + T[:, None, None, :3, 3]


def main() -> None:
    """Trains a diffusion policy that reads these tokens, and loads its checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("runs/own_encoder"))
    given = parser.parse_args()
    store = record(given.output / "demonstrations", given.episodes, image_size=64)
    encoder = {"_target_": "own_encoder:DepthPoints", "_partial_": True}
    model = {"_target_": "stringline.DiffusionPolicy", "observation_encoder": encoder, "chunk": 48}
    trainer = Trainer(steps=given.steps, batch_size=8, precision="no")
    folder = given.output / "training"
    train_policy(model, store, trainer, folder, trust=("own_encoder",))
    policy = load_policy(folder / "checkpoint", trust=("own_encoder",))
    millions = sum(parameter.numel() for parameter in policy.parameters()) / 1e6
    print(f"{folder / 'checkpoint'} has {millions:.1f} million parameters.")


if __name__ == "__main__":
    main()
