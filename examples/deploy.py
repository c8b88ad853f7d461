"""Runs a policy on emulated arms, through the safety filter, the driver and the real protocol.

    python examples/deploy.py                       # two ALOHA arms over the servo protocol
    python examples/deploy.py --task kuka_pick      # one KUKA arm over FRI

Each episode starts an emulator that speaks the protocol of the arms, and the device process that
filters every command. Episodes are those of `examples/evaluate.py` with the same seeds. To move
real arms, read docs/robots.md first, then run `stringline-deploy robot=aloha checkpoint=...`.
"""

import argparse

FIRST_SEED = 1_000_000


def main() -> None:
    """Runs some episodes and prints the successes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="hand_over_banana", help="hand_over_banana or kuka_pick")
    parser.add_argument("--checkpoint", help="name or folder; default: the shipped one")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="longest episode")
    given = parser.parse_args()
    # Imported here: the device process imports this file as well, and must start without torch.
    from stringline import LoopEvaluation, Rate, TaskSettings, load_policy

    policy = load_policy(given.checkpoint or given.task)
    task = TaskSettings(
        given.task,
        cameras=tuple(camera.name for camera in policy.contract.cameras),
        image_size=policy.contract.cameras[0].height,
        time_limit_s=given.seconds,
    )
    evaluation = LoopEvaluation(policy, task, execute_steps=24, workers=1)
    results = evaluation.run(range(FIRST_SEED, FIRST_SEED + given.episodes))
    for result in results:
        outcome = "success" if result.success else f"failed after {result.stage_name!r}"
        print(f"seed {result.seed}: {outcome}, {result.time_s:.1f} s")
    print(f"{given.task}, emulated: {Rate(sum(r.success for r in results), len(results))}")


if __name__ == "__main__":
    main()
