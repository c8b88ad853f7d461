"""Endurance of emulated arms in real time: memory, limits and timing.

    python benchmarks/soak.py --minutes 30 --json soak.json
    python benchmarks/soak.py --minutes 0.5                      to try
    python benchmarks/soak.py --minutes 30 --swing     without MuJoCo, images and a network
    python benchmarks/soak.py --minutes 30 execution=real_time_chunking
    python benchmarks/soak.py --minutes 30 robot=kuka_emulated task=kuka_pick checkpoint=...
    python benchmarks/soak.py --minutes 30 --swing robot=kuka_lcm_emulated task=kuka_pick

What runs is what `stringline-deploy robot.lock_step=false` runs, and what its options (of
configs/deploy.yaml) change: servos on pseudo-terminals or controllers on UDP over the MuJoCo world,
a process per camera, the checkpoint, the device process behind its safety filter, the incident
recorder, and the recorder of one long episode, without images, of which half an hour would be 7 GB.
Worlds follow one another, seed after seed, each until success or the task's time limit, with the
way home in between. The policy acts in the supervisor's process, as it does in a deployment.
`--swing` has joints swing instead, faster than they may: no camera, no network, a world without
MuJoCo. The table's last column says how many cores each part took; the process that draws what
emulated cameras see is not among them.

Every 10 seconds the memory of each process is looked at: all that is resident (RSS), the same with
what is shared divided among those who share it (PSS), and what is its own. A straight line goes
through the last 80 % of the time. Judged is what is a process's own: memory that is shared is made
once, and counts for a process from when it first touches it. Goals are counted and held against the
limits where they arrive, in the bytes that the emulator captured.

It ends by itself; Ctrl-C ends it earlier and prints what was seen. The exit code is 1 if a goal was
outside a limit, if a process other than the emulator grew by more than 1 MiB of its own in ten
minutes, if there is no recording, or if it could not go on to the end. Growth is not judged where
those 80 % are shorter than four minutes.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Observation
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.policies.chunks.chunk import ActionChunk, Policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.device.device_process import DeviceError
from stringline.real_robot.device.process_memory import MEBIBYTE, Growth, processor_s, resident
from stringline.real_robot.emulators.program.emulator_client import Emulator, EmulatorError
from stringline.real_robot.protocol_in_the_loop.real_time_runner import (
    RealTimeResult,
    RealTimeRunner,
    real_time_emulator,
)
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder, Recorded
from stringline.real_robot.robots.robot_factory import RobotFactory

# This folder holds a file named like Python's own package `encodings`, which a child process would
# import instead.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

FIRST_SEED = 1_000_000
WARM_UP, MOST_MIB, LEAST_S = 0.2, 1.0, 240.0
NOT_JUDGED = "emulator"  # It stands for the hardware.
KINDS, JUDGED = ("rss", "pss", "private"), "private"
INTERRUPTED = 130


class Swing:
    """A policy without images: joints swing about home, some beyond their speed limit."""

    def __init__(self, body: Embodiment) -> None:
        """Swings the joints of a body."""
        self._body, self.contract = body, body.contract([], 50.0)

    def session(self, seed: int) -> "Swing":
        """Returns itself: it remembers nothing."""
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers with the next second."""
        due = float(observation["time"]) + 0.02 * np.arange(48, dtype=np.float64)
        hz = 0.2 + 0.15 * np.arange(len(self._body.joints))
        way = self._body.home + 0.4 * np.sin(2 * np.pi * np.outer(due, hz))
        return ActionChunk(due, np.clip(way, self._body.lower, self._body.upper).astype(np.float32))


@dataclass
class Watched:
    """Memory of a process over time, in arrays, so that the record itself does not grow."""

    pid: int
    began_s: float
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    memory: "dict[str, array[int]]" = field(
        default_factory=lambda: {kind: array("q") for kind in KINDS}
    )
    processor_s: float = 0.0

    def look(self, now: float) -> None:
        """Takes a sample, if the process still lives."""
        if (found := resident(self.pid)) is not None:
            self.seconds.append(round(now, 3))
            for kind, sizes in self.memory.items():
                sizes.append(getattr(found, kind))
            self.processor_s = processor_s(self.pid) - self.began_s

    def growth(self, kind: str, lasts_s: float) -> Growth | None:
        """Returns the growth of a kind of memory after the first 20 % of the time, if known."""
        warm = [index for index, second in enumerate(self.seconds) if second >= WARM_UP * lasts_s]
        if len(warm) < 2:
            return None
        return Growth.of(
            [self.seconds[index] for index in warm], [self.memory[kind][index] for index in warm]
        )


class Soak:
    """Runs, and says what was seen."""

    def __init__(self, settings: DeploymentSettings, minutes: float, every_s: float) -> None:
        """Keeps what is asked for."""
        self._settings, self._lasts_s, self._every_s = settings, 60.0 * minutes, every_s
        self._processes: dict[str, Watched] = {}
        self._episodes: list[RealTimeResult] = []
        self._arms: RealTimeRunner | None = None
        self._began, self._sampled = time.monotonic(), -every_s
        self.stopped = ""
        self.recorded = Recorded(problem="it was not asked to end the episode")

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def run(self, policy: Policy, emulator: Emulator, folder: Path) -> None:
        """Runs to the end, or until Ctrl-C or a failure, which `stopped` then names."""
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
                    name: Watched(pid, processor_s(pid))
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
        """Looks at memory when it is time to."""
        now = self.seconds
        if self._processes and not self._sampled <= now < self._sampled + self._every_s:
            self._sampled = now
            for process in self._processes.values():
                process.look(now)

    def _progress(self) -> None:
        assert self._arms is not None
        check, watch, done = (
            self._arms.check,
            self._arms.watch,
            sum(result.success for result in self._episodes),
        )
        print(
            f"{self.seconds / 60:5.1f} min  {len(self._episodes)} episodes, {done} done; "
            f"{check.goals} goals, "
            f"{check.violations} outside limits; {watch.late} deadlines missed, {watch.holds} "
            f"holds, {watch.faults} faults",
            flush=True,
        )

    def verdict(self) -> list[str]:
        """Returns what must not be, in words."""
        found = [f"it stopped after {self.seconds:.0f} s: {self.stopped}"] * bool(self.stopped)
        if self.recorded.problem and not self.stopped:
            found.append(f"nothing was recorded: {self.recorded.problem}")
        if self._arms is not None and self._arms.check.violations:
            found.append(f"{self._arms.check.violations} goals were outside a limit")
        if self._arms is not None and self._arms.failed_homings:
            found.append(
                f"arms did not come home {self._arms.failed_homings} times, and a new world took "
                f"them there"
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
            "processes": {},
        }
        for name, process in self._processes.items():
            growths = {kind: process.growth(kind, self._span_s) for kind in KINDS}
            found["processes"][name] = {
                "cores": round(process.processor_s / max(self._span_s, 1e-9), 3),
                "mib_per_10_minutes": {
                    kind: None if one is None else round(one.mib, 4)
                    for kind, one in growths.items()
                },
                "samples": {
                    "s": list(process.seconds),
                    **{kind: list(sizes) for kind, sizes in process.memory.items()},
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
        head = (
            "process",
            "RSS, MiB",
            "PSS",
            "own",
            "RSS grows",
            "PSS",
            "own, MiB / 10 min",
            "cores",
        )
        yield "{:<20} {:>9} {:>7} {:>7} {:>10} {:>7} {:>24} {:>6}".format(*head)
        for name, process in self._processes.items():
            if not process.seconds:
                continue
            sizes = (f"{process.memory[kind][-1] / MEBIBYTE:.1f}" for kind in KINDS)
            grown = (
                _grown(process.growth(kind, self._span_s), exactly=kind == JUDGED) for kind in KINDS
            )
            cores = f"{process.processor_s / max(self._span_s, 1e-9):.2f}"
            yield "{:<20} {:>9} {:>7} {:>7} {:>10} {:>7} {:>24} {:>6}".format(
                name, *sizes, *grown, cores
            )
        if self._arms is not None:
            yield from self._arms.watch.lines()
            for arm, check in self._arms.check.arms.items():
                yield (
                    f"{arm}: {check.goals} goals arrived, {check.violations} outside limits; at "
                    f"most {check.velocity:.4f} of "
                    f"what velocity allows, {check.acceleration:.4f} of acceleration; an episode "
                    f"began at most "
                    f"{check.resumed:.4f} away from the last goal before it."
                )


def _grown(growth: Growth | None, *, exactly: bool) -> str:
    if growth is None:
        return "-"
    judged = "" if growth.span_s >= LEAST_S else " (short)"
    return (
        f"{growth.mib:+.2f} +- {growth.error_mib:.2f}{judged}" if exactly else f"{growth.mib:+.2f}"
    )


def deployment_settings(overrides: Sequence[str]) -> DeploymentSettings:
    """Returns what `stringline-deploy` would be told, by the clock."""
    # Processes that are spawned import this module, and have no use for these.
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("stringline.configs", version_base="1.3"):
        config = compose("deploy", overrides=["robot.lock_step=false", *overrides])
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return DeploymentSettings.of({str(key): value for key, value in plain.items()})


@contextmanager
def _actor(
    settings: DeploymentSettings, folder: Path, *, swing: bool
) -> Iterator[tuple[Policy, Emulator]]:
    """Yields who acts, and the emulator of its arms, not started yet."""
    if swing:
        backend = RobotFactory(settings.robot).backend
        yield Swing(backend.embodiment), backend.bare_emulator(capture=folder)
        return
    import torch

    from stringline.policies.checkpoints.load import open_policy

    torch.set_num_threads(1)
    policy, _ = open_policy(settings.checkpoint)
    yield policy, real_time_emulator(settings, policy, folder)


def main() -> int:
    """Runs, prints the table and, if asked, writes it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        help="of configs/deploy.yaml, such as checkpoint=... or execution=...",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, above 0")
    parser.add_argument(
        "--every", type=float, default=10.0, help="seconds between two looks at memory"
    )
    parser.add_argument(
        "--swing", action="store_true", help="let joints swing, without MuJoCo and a network"
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    if given.minutes <= 0 or given.every <= 0:
        parser.error("--minutes and --every are above 0.")
    settings = deployment_settings(given.overrides)
    with tempfile.TemporaryDirectory(prefix="stringline-soak-") as name:
        with _actor(settings, Path(name), swing=given.swing) as (policy, emulator):
            soak = Soak(settings, given.minutes, given.every)
            soak.run(policy, emulator, Path(name))
        print("\n".join(soak.lines()), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(soak.to_dict(), indent=1) + "\n")
    verdict = soak.verdict()
    print(
        "\n".join(f"NOT AS IT SHOULD BE: {sentence}." for sentence in verdict)
        or "As it should be.",
        flush=True,
    )
    return INTERRUPTED if soak.stopped == "Ctrl-C" else int(bool(verdict))


if __name__ == "__main__":
    sys.exit(main())
