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

import argparse
import json
from pathlib import Path


def main() -> None:
    """Runs what is missing, prints it and writes it down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        help="of configs/deploy.yaml, such as checkpoint=... or execution=...",
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first-seed", type=int, default=1_000_000, help="the first of them")
    parser.add_argument(
        "--workers", type=int, default=2, help="worlds, or emulated robots, at a time"
    )
    parser.add_argument(
        "--by-the-clock",
        type=int,
        default=10,
        help="how many of the seeds run in real time as well; 0: none",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/wire"), help="folder where results are kept"
    )
    given = parser.parse_args()
    if given.seeds < 1 or given.workers < 1 or given.by_the_clock < 0:
        parser.error("--seeds and --workers are 1 or more, --by-the-clock 0 or more.")
    if given.first_seed < 0:
        parser.error(f"--first-seed is 0 or more, not {given.first_seed}.")
    # Processes that are spawned import this module; torch, and the rest, have no place beside the
    # loop of a device process. The first one takes this folder off the path: a file in it is named
    # like Python's own package `encodings`.
    from soak import deployment_settings

    from stringline.datasets.files.atomic import write_file
    from stringline.datasets.files.lock import exclusive
    from stringline.real_robot.protocol_in_the_loop.loop_comparison import LoopComparison, summary
    from stringline.sim.evaluation.seed_runner import evaluation_seeds
    from stringline.sim.report.system_info import package_versions, system_info

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
