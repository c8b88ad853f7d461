"""Records demonstrations and trains a policy from them, without the commands of Stringline.

    python examples/train.py                        # about seven minutes on two cores
    python examples/train.py --episodes 2 --steps 10 --output runs/short

The policy predicts where the grippers act next from point clouds, as that of `make demo` does.
`examples/evaluate.py` measures the result.
"""

import argparse
from pathlib import Path

from stringline import (
    EpisodeAttributes,
    EpisodeStore,
    Trainer,
    make_expert,
    open_world,
    record_episode,
    train_policy,
)

TASK = "hand_over_banana"
CAMERAS = ["overhead", "wrist_left", "wrist_right"]


def record(folder: Path, episodes: int, image_size: int) -> EpisodeStore:
    """Records successful episodes of the scripted expert in a new store."""
    store = EpisodeStore.create(folder)
    world = open_world(TASK, cameras=CAMERAS, image_size=image_size, time_limit_s=20.0)
    expert = make_expert(TASK, varied=False)
    seed = 10_000  # Evaluations use seeds from 1,000,000 on.
    while len(store) < episodes:
        recording = record_episode(world, expert, seed)
        if recording.success:
            attributes = EpisodeAttributes(world.contract, TASK, seed, success=True)
            store.write(recording.arrays, attributes)
            print(f"{len(store)} of {episodes} demonstrations", flush=True)
        seed += 1
    world.close()
    return store


def model(dim: int) -> dict[str, object]:
    """Returns the configuration of the policy, which its checkpoint will contain.

    Attention rotates queries, keys and values by Cayley-STRING over positions in metres.
    """
    encoding = {
        "_target_": "stringline.CayleyString",
        "_partial_": True,
        "share_heads": False,
        "wavelengths": [0.04, 2.0],
    }
    encoder = {
        "_target_": "stringline.PointEncoder",
        "_partial_": True,
        "encoding": encoding,
        "dim": dim,
    }
    return {
        "_target_": "stringline.KeyposePolicy",
        "observation_encoder": encoder,
        "encoding": encoding,
    }


def main() -> None:
    """Records, trains, and names the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=48)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--dim", type=int, default=96, help="width of the tokens")
    parser.add_argument("--output", type=Path, default=Path("runs/example"))
    given = parser.parse_args()
    store = record(given.output / "demonstrations", given.episodes, given.image_size)
    trainer = Trainer(
        steps=given.steps,
        batch_size=16,
        learning_rate=1.5e-3,
        weight_decay=0.02,
        ema_decay=0.98,
        precision="no",
    )
    train_policy(model(given.dim), store, trainer, given.output / "training")
    print(f"python examples/evaluate.py {given.output / 'training' / 'checkpoint'}")


if __name__ == "__main__":
    main()
