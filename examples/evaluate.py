"""Measures a checkpoint in simulation: successes with their interval, and videos.

python examples/evaluate.py                     # the shipped policy of the banana hand-over
python examples/evaluate.py runs/example/training/checkpoint --episodes 50

Demonstrations use smaller seeds, so the policy has not seen these episodes.
"""

import argparse
from functools import partial
from pathlib import Path

from stringline import Evaluation, Rate, load_policy, open_world

FIRST_SEED = 1_000_000


def main() -> None:
    """Evaluates a policy on seeds that no demonstration has used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", nargs="?", default="hand_over_banana", help="name or folder")
    parser.add_argument("--task", default="hand_over_banana")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0, help="longest episode")
    parser.add_argument("--videos", type=Path, help="folder of the videos")
    given = parser.parse_args()
    policy = load_policy(given.checkpoint)
    make_world = partial(
        open_world,
        given.task,
        cameras=[camera.name for camera in policy.contract.cameras],
        image_size=policy.contract.cameras[0].height,
        time_limit_s=given.seconds,
    )
    # The worlds run in two processes of their own; the policy plans for both here.
    evaluation = Evaluation(policy, make_world, execute_steps=16, workers=2, videos=given.videos)
    results = evaluation.run(range(FIRST_SEED, FIRST_SEED + given.episodes))
    for result in results:
        outcome = "success" if result.success else f"failed after {result.stage_name!r}"
        print(f"seed {result.seed}: {outcome}, {result.time_s:.1f} s")
    print(f"{given.task}: {Rate(sum(result.success for result in results), len(results))}")


if __name__ == "__main__":
    main()
