"""Endurance of emulated arms in real time: memory, limits and timing.

    python benchmarks/soak.py --minutes 30 --json soak.json
    python benchmarks/soak.py --minutes 0.5          # a short trial
    python benchmarks/soak.py --minutes 30 --swing   # without MuJoCo, images and a network
    python benchmarks/soak.py --minutes 30 execution=real_time_chunking
    python benchmarks/soak.py --minutes 30 robot=kuka_emulated task=kuka_pick checkpoint=...
    python benchmarks/soak.py --minutes 30 --swing robot=kuka_lcm_emulated task=kuka_pick

It runs the same as `stringline-deploy robot.lock_step=false` with the same options (of
configs/deploy.yaml): servos on pseudo-terminals or controllers on UDP with the MuJoCo world behind
them, a process per camera, the checkpoint, the device process with its safety filter, the incident
recorder, and the recorder of one long episode (without images, which would take 7 GB in half an
hour). Worlds follow each other, seed after seed, each until success or the task's time limit; in
between the arms move home. The policy acts in the process of the supervisor, as in a deployment.
With `--swing`, joints swing instead, some beyond their speed limit: no camera, no network, and a
world without MuJoCo. The last column of the table is the number of cores of each process; the
process that renders the images of emulated cameras is omitted.

The memory of each process is sampled every 10 seconds: the resident memory (RSS), the same with
shared memory divided among its processes (PSS), and the memory of the process alone. The growth is
the slope of a line through the last 80 % of the time. Only the memory of the process alone is
judged, since a process counts shared memory from its first access on. Goals are checked against the
limits at their arrival, in the bytes that the emulator captured.

It ends by itself; Ctrl-C ends it earlier and prints the results so far. The exit code is 1 if a
goal was outside a limit, if a process other than the emulator grew by more than 1 MiB in ten
minutes, if the episode was not recorded, or if an error ended the run. Growth is not judged if
those 80 % are shorter than four minutes.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from emulated_deployment import deployment_settings, open_actor
from measurement import parser_of
from process_watch import HEAD, JUDGED, LEAST_S, WatchedProcess

from stringline.datasets.store.episode import EpisodeAttributes
from stringline.policies.chunks.chunk import Policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.device.device_process import DeviceError
from stringline.real_robot.device.process_monitor import processor_s
from stringline.real_robot.emulated_evaluation.real_time_runner import (
    RealTimeResult,
    RealTimeRunner,
)
from stringline.real_robot.emulators.program.emulator_client import Emulator, EmulatorError
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder, Recorded
from stringline.real_robot.robots.robot_factory import RobotFactory

FIRST_SEED = 1_000_000
MOST_MIB = 1.0
NOT_JUDGED = "emulator"  # It stands for the hardware.
INTERRUPTED = 130


class Soak:
    """Runs a deployment, and collects its results."""

    def __init__(self, settings: DeploymentSettings, minutes: float, every_s: float) -> None:
        self._settings = settings
        self._lasts_s = 60.0 * minutes
        self._every_s = every_s
        self._processes: dict[str, WatchedProcess] = {}
        self._episodes: list[RealTimeResult] = []
        self._arms: RealTimeRunner | None = None
        self._began = time.monotonic()
        self._sampled = -every_s
        self.stopped = ""
        self.recorded = Recorded(problem="the episode was not ended")

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def run(self, policy: Policy, emulator: Emulator, folder: Path) -> None:
        """Runs to the end, or until Ctrl-C or an error, which `stopped` then names."""
        try:
            with ExitStack() as stack:
                stack.enter_context(emulator)
                arms = self._arms = stack.enter_context(
                    RealTimeRunner(self._settings, policy, emulator, folder, self._look)
                )
                recorder = stack.enter_context(self._recorder(arms, folder))
                pids = arms.pids | {"episode recorder": recorder.pid}
                pids |= {"supervisor, policy": os.getpid(), NOT_JUDGED: emulator.pid}
                self._began = time.monotonic()
                self._processes = {
                    name: WatchedProcess(pid, processor_s(pid))
                    for name, pid in pids.items()
                    if pid is not None
                }
                self._act(arms)
                self.recorded = recorder.commit(None, {})
                print(f"Recorded {self.recorded.steps} steps, {self.recorded.lost} records lost.")
        except KeyboardInterrupt:
            self.stopped = "Ctrl-C"
        except (DeviceError, EmulatorError, ValueError) as error:
            self.stopped = str(error)

    def _act(self, arms: RealTimeRunner) -> None:
        limit_s, seed = self._settings.seconds, FIRST_SEED
        while (left := self._lasts_s - self.seconds) > 0:
            self._episodes.append(arms.episode(seed, min(limit_s, left)))
            seed += 1
            self._progress()
            for fault in self._episodes[-1].episode.fault:
                print(f"          a fault stopped the arms: {fault}", flush=True)

    def _recorder(self, arms: RealTimeRunner, folder: Path) -> DeploymentRecorder:
        embodiment = RobotFactory(self._settings.robot).embodiment
        about = EpisodeAttributes(
            embodiment.contract([], self._settings.robot.control_hz),
            self._settings.task.name,
            FIRST_SEED,
            source="deployment",
        )
        device = arms.robot.device
        return DeploymentRecorder(device, folder / "episodes", about, embodiment, frame_hz=1.0)

    def _look(self) -> None:
        """Samples the memory of all processes if a sample is due."""
        now = self.seconds
        if self._processes and not self._sampled <= now < self._sampled + self._every_s:
            self._sampled = now
            for process in self._processes.values():
                process.look(now)

    def _progress(self) -> None:
        assert self._arms is not None
        check = self._arms.check
        watch = self._arms.watch
        done = sum(result.success for result in self._episodes)
        print(
            f"{self.seconds / 60:5.1f} min  {len(self._episodes)} episodes, {done} done; "
            f"{check.goals} goals, "
            f"{check.violations} outside limits; {watch.late} deadlines missed, {watch.holds} "
            f"holds, {watch.faults} faults",
            flush=True,
        )

    def verdict(self) -> list[str]:
        """Returns the failures of the run, in words."""
        found = [f"stopped after {self.seconds:.0f} s: {self.stopped}"] * bool(self.stopped)
        if self.recorded.problem and not self.stopped:
            found.append(f"nothing was recorded: {self.recorded.problem}")
        if self._arms is not None and self._arms.check.violations:
            found.append(f"{self._arms.check.violations} goals were outside a limit")
        if self._arms is not None and self._arms.failed_homings:
            found.append(
                f"arms did not reach their home pose {self._arms.failed_homings} times; a reset of "
                f"the world moved them there"
            )
        for name, process in self._processes.items():
            growth = process.growth(JUDGED, self._span_s)
            if (
                name != NOT_JUDGED
                and growth is not None
                and growth.span_s >= LEAST_S
                and growth.mib > MOST_MIB
            ):
                found.append(
                    f"{name} grows by {growth.mib:.2f} MiB in ten minutes; allowed: {MOST_MIB}"
                )
        return found

    @property
    def _span_s(self) -> float:
        """Time of the last sample."""
        return max(
            (process.seconds[-1] for process in self._processes.values() if process.seconds),
            default=0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON."""
        found: dict[str, Any] = {
            "minutes": round(self._span_s / 60, 3),
            "verdict": self.verdict(),
            "processes": {
                name: process.to_dict(self._span_s) for name, process in self._processes.items()
            },
        }
        if self._arms is not None:
            arms = {
                name: {k: v for k, v in vars(check).items() if k[0] != "_"}
                for name, check in self._arms.check.arms.items()
            }
            plans = {
                name: sum(getattr(one.episode, name) for one in self._episodes)
                for name in ("plans", "refused", "waits")
            }
            found |= {
                "loop": self._arms.watch.to_dict(),
                "wire": arms,
                "plans": plans,
                "failed_homings": self._arms.failed_homings,
            }
        done = sum(result.success for result in self._episodes)
        faults = [
            [result.seed, *result.episode.fault]
            for result in self._episodes
            if result.episode.fault
        ]
        return found | {"episodes": len(self._episodes), "successes": done, "faults": faults}

    def lines(self) -> Iterator[str]:
        """Yields the table."""
        yield HEAD
        for name, process in self._processes.items():
            if process.seconds:
                yield process.line(name, self._span_s)
        if self._arms is not None:
            yield from self._arms.watch.lines()
            for arm, check in self._arms.check.arms.items():
                yield (
                    f"{arm}: {check.goals} goals arrived, {check.violations} outside limits. "
                    f"Largest share of the velocity limit {check.velocity:.4f}, of the "
                    f"acceleration limit {check.acceleration:.4f}; largest distance of the first "
                    f"goal of an episode from the last goal before it {check.resumed:.4f}."
                )


def main() -> int:
    """Runs, prints the table and writes the results on request."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "overrides",
        nargs="*",
        help="of configs/deploy.yaml, such as checkpoint=... or execution=...",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="duration, above 0")
    parser.add_argument(
        "--every", type=float, default=10.0, help="seconds between two samples of memory"
    )
    parser.add_argument(
        "--swing", action="store_true", help="let joints swing, without MuJoCo and a network"
    )
    given = parser.parse_args()
    if given.minutes <= 0 or given.every <= 0:
        parser.error("--minutes and --every are above 0.")
    settings = deployment_settings(given.overrides)
    with tempfile.TemporaryDirectory(prefix="stringline-soak-") as name:
        with open_actor(settings, Path(name), swing=given.swing) as (policy, emulator):
            soak = Soak(settings, given.minutes, given.every)
            soak.run(policy, emulator, Path(name))
        print("\n".join(soak.lines()), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(soak.to_dict(), indent=1) + "\n")
    verdict = soak.verdict()
    print(
        "\n".join(f"FAILED: {sentence}." for sentence in verdict) or "Passed.",
        flush=True,
    )
    return INTERRUPTED if soak.stopped == "Ctrl-C" else int(bool(verdict))


if __name__ == "__main__":
    sys.exit(main())
