"""Success of a policy directly in simulation and through the robot's protocol, same seeds.

    python benchmarks/wire.py --seeds 100 --output runs/wire
    python benchmarks/wire.py --seeds 100 --workers 2 --output runs/wire_late execution=stop_and_go
    python benchmarks/wire.py --seeds 4 --by-the-clock 1 --output runs/wire_try task.time_limit_s=10
    python benchmarks/wire.py task=kuka_pick robot=kuka_emulated checkpoint=... --output runs/kuka

Further arguments override configs/deploy.yaml: checkpoint=, task=, execution=, execute_steps=,
options. Through the real protocol a world, the device process with its safety filter and the policy
wait for each other (lock-step), so nothing is late; both ways a plan is in force
`execution.delay_s` after its observation. `--workers` sets the number of parallel worlds or
emulated robots, each in processes of its own; one policy plans for all of them in turn, so results
do not depend on that number. Finished seeds are kept in OUTPUT/direct and OUTPUT/wire
(results.jsonl); after an interruption the same command continues. `stringline-compare OUTPUT/direct
OUTPUT/wire` shows the comparison again.

The output has both rates with their Wilson 95 % intervals; the difference on the same seeds with
Tango's 95 % interval and McNemar's exact test; and whether that interval is within plus or minus 10
points. Then the first `--by-the-clock` seeds run in real time, with images, network and emulated
arms on this machine: success, durations of cycles, jitter, age of commands, and goals outside the
limits. OUTPUT/wire.json contains all of it.
"""

import json
from pathlib import Path

from measurement import parser_of


def main() -> None:
    """Runs the missing episodes, and prints and writes the results."""
    parser = parser_of(__doc__, results=False)
    parser.add_argument(
        "overrides",
        nargs="*",
        help="of configs/deploy.yaml, such as checkpoint=... or execution=...",
    )
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=1_000_000, help="first seed")
    parser.add_argument(
        "--workers", type=int, default=2, help="number of parallel worlds or emulated robots"
    )
    parser.add_argument(
        "--by-the-clock",
        type=int,
        default=10,
        help="number of seeds that also run in real time",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/wire"), help="folder of the results"
    )
    given = parser.parse_args()
    if given.seeds < 1 or given.workers < 1 or given.by_the_clock < 0:
        parser.error("--seeds and --workers are 1 or more, --by-the-clock 0 or more.")
    if given.first_seed < 0:
        parser.error(f"--first-seed is 0 or more, not {given.first_seed}.")
    # Spawned processes import this module; the loop of a device process must not load torch.
    from emulated_deployment import deployment_settings
    from loop_comparison import LoopComparison, summary

    from stringline.datasets.files.atomic import exclusive, write_file
    from stringline.sim.evaluation.suites import evaluation_seeds
    from stringline.sim.report.report import package_versions, system_info

    given.output.mkdir(parents=True, exist_ok=True)
    with exclusive(given.output):
        comparison = LoopComparison(
            deployment_settings(given.overrides), given.workers, given.output
        )
        if given.by_the_clock:
            try:
                comparison.check_real_time()
            except ValueError as error:
                parser.error(f"{error} Allowed: --by-the-clock 0.")
        found, lines = summary(*comparison.run(evaluation_seeds(given.seeds, given.first_seed)))
        print("\n".join(["", comparison.description(), system_info(), *lines]), flush=True)
        if given.by_the_clock:
            found["by_the_clock"], lines = comparison.run_in_real_time(
                evaluation_seeds(given.by_the_clock, given.first_seed)
            )
            print("\n".join(lines), flush=True)
        found |= {
            "what": comparison.description(),
            "machine": system_info(),
            "versions": package_versions(),
        }
        write_file(given.output / "wire.json", json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
