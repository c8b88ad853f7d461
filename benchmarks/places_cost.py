"""What places of image tokens and a keypose cost: processor time of a chunk and of a training step.

    python benchmarks/places_cost.py --json FILE

Each row has the time of one core in milliseconds and its ratio to the default, `metric`. All kinds
take turns, and the shortest of the repetitions counts, since other programs only make it longer.
The policy is the default of `stringline-train` with three cameras of ALOHA; images and depth are
random.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from hydra import compose, initialize_config_module
from measurement import Row, parser_of, row, write_rows
from omegaconf import OmegaConf
from torch import Tensor

from stringline.datasets.command.entry_points import keep_freed_memory
from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import build_policy

CAMERAS = ("overhead", "wrist_left", "wrist_right")
LEARNED = "policy.observation_encoder.learned_places=true"
SMALL_PATCHES = (
    "+policy.observation_encoder.embedding="
    "{_target_: stringline.ConvolutionalStem, _partial_: true, patch: 8}"
)
# Side of the images in pixels, and overrides of stringline-train.
KINDS: dict[str, tuple[int, list[str]]] = {
    "metric": (128, []),
    "rays": (128, ["coordinates=rays"]),
    "learned_places": (128, [LEARNED]),
    "patches_of_8": (128, [SMALL_PATCHES]),
    "images_of_256": (256, []),
}


def contract_of(side: int) -> Contract:
    """Returns ALOHA's contract with square images."""
    return ALOHA.contract([Camera(name, side, side, "simulated") for name in CAMERAS], 50.0)


def policy_of(side: int, overrides: list[str]) -> ChunkPolicy:
    """Returns the untrained policy of a training."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        config = compose("train", overrides=["dataset.path=none", *overrides])
    model = OmegaConf.to_container(config.policy, resolve=True)
    assert isinstance(model, dict)
    rows = np.stack([ALOHA.lower, ALOHA.upper])
    of_joints = statistics_of(lambda: iter([rows]))
    statistics = Statistics({"action": of_joints, "joints/position": of_joints})
    torch.manual_seed(0)
    plain = {str(key): value for key, value in model.items()}
    return build_policy(plain, contract_of(side), statistics)


def batch_of(contract: Contract, examples: int, chunk: int) -> dict[str, Tensor]:
    """Returns random windows."""
    random = np.random.default_rng(0)
    q = np.zeros(len(contract.joints))
    arrays = {"joints/position": q.astype(np.float32)}
    arrays |= {f"T_base_gripper/{arm}": T for arm, T in ALOHA.forward_kinematics(q).items()}
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        half = camera.height / 2
        arrays |= {
            f"rgb/{camera.name}": random.integers(0, 256, (*size, 3)).astype(np.uint8),
            f"depth/{camera.name}": random.integers(300, 1200, size).astype(np.uint16),
            f"intrinsics/{camera.name}": np.array([[half, 0, half], [0, half, half], [0, 0, 1]]),
            f"T_base_camera/{camera.name}": ALOHA.camera_poses(q)[camera.name],
        }
    batch = {key: torch.from_numpy(value)[None] for key, value in arrays.items()}
    batch = {key: x.float() if x.dtype == torch.float64 else x for key, x in batch.items()}
    many = {key: x.expand(examples, *x.shape[1:]) for key, x in batch.items()}
    actions = torch.zeros(examples, chunk, len(contract.action))
    mask = torch.ones(actions.shape[:2]).bool()
    return many | {"action": actions, "action_mask": mask, "keypose": actions[:, 0]}


def planned(policy: ChunkPolicy, batch: Mapping[str, Tensor]) -> None:
    """Plans one chunk."""
    with torch.no_grad():
        policy.generate(policy.observation_encoder(batch), torch.Generator().manual_seed(0))


def trained(policy: ChunkPolicy, batch: Mapping[str, Tensor]) -> None:
    """Computes a loss and its gradients."""
    policy.loss(batch).backward()


def measured(repetitions: int, examples: int) -> list[Row]:
    """Returns the rows of all kinds."""
    best: dict[tuple[str, str], float] = {}
    policies = {kind: policy_of(*given) for kind, given in KINDS.items()}
    work: dict[str, tuple[int, Callable[[ChunkPolicy, Mapping[str, Tensor]], None]]] = {
        "chunk": (1, planned),
        "training_step": (examples, trained),
    }
    for _ in range(repetitions):
        for kind, policy in policies.items():
            for name, (count, run) in work.items():
                policy.train(run is trained)
                batch = batch_of(contract_of(KINDS[kind][0]), count, policy.chunk)
                start = time.process_time()
                run(policy, batch)
                took = time.process_time() - start
                best[name, kind] = min(took, best.get((name, kind), took))
    return [
        row(f"{name}/{kind}", 1e3 * value, "ms", "metric", value / best[name, "metric"])
        for (name, kind), value in sorted(best.items())
    ]


def main() -> None:
    """Prints a line per row."""
    parser = parser_of(__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--examples", type=int, default=4, help="windows per training step")
    given = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    rows = measured(given.repetitions, given.examples)
    for each in rows:
        print(f"{each['name']:32} {each['value']:9.1f} ms  {each['ratio']:5.2f}", flush=True)
    write_rows(rows, given.json)


if __name__ == "__main__":
    main()
