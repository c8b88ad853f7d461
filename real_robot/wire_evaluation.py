"""Measures a policy on emulated arms: the seeds of simulation, but every action goes through filter, driver and wire."""

import logging
import queue
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from stringline.datasets.contract import Camera, Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunk import ActionChunk, Policy, Session
from stringline.real_robot.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha import AlohaDriver
from stringline.real_robot.emulators.client import Emulator
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.lock_step import LockStepRobot, WireEpisode
from stringline.sim.evaluation import command_acceleration
from stringline.sim.measures import limit_hits
from stringline.sim.results import EpisodeResult, ResultsFile

log = logging.getLogger(__name__)

# In lock-step the world waits, so a late answer on a busy machine costs nothing.
_PATIENCE_S = 1.0


class WireEvaluation:
    """Runs a policy on seeds, on emulated arms in lock-step.

    Args:
        policy: What is measured.
        task: As in `configs/task`: name, image_size, control_hz, frame_hz, time_limit_s, options.
        execute_steps: Control periods between two plans.
        workers: Emulated robots at a time; they do not change the results.
    """

    def __init__(self, policy: Policy, task: Mapping[str, Any], *, execute_steps: int, workers: int = 2) -> None:
        if execute_steps < 1 or workers < 1:
            raise ValueError(f"execute_steps is {execute_steps} and workers {workers}; allowed: 1 and above.")
        self._policy, self._task, self._execute_steps, self._workers = policy, dict(task), execute_steps, workers
        self._options: dict[str, float] = dict(task.get("options") or {})
        cameras = [Camera(camera.name, camera.height, camera.width, "simulated") for camera in policy.contract.cameras]
        if misfits := policy.contract.misfits(ALOHA.contract(cameras, float(task["control_hz"]))):
            raise ValueError(f"The policy does not fit the emulated ALOHA. {' '.join(misfits)}")

    def run(
        self, seeds: Sequence[int], file: Path | None = None, about: Mapping[str, Any] | None = None
    ) -> list[EpisodeResult]:
        """Runs the episodes that are not yet in the file.

        Args:
            seeds: Distinct seeds.
            file: Where results are kept, line by line; with it an interrupted evaluation continues.
            about: What is measured, plain JSON: a file that says otherwise is refused.

        Returns:
            One result per seed, in their order.

        Raises:
            ValueError: The file belongs to another evaluation.
            RuntimeError: A robot failed.
        """
        if len(set(seeds)) != len(seeds):
            raise ValueError("The seeds of an evaluation must differ from each other.")
        settings = {"wire": True, "execute_steps": self._execute_steps, "options": self._options, **(about or {})}
        kept = None if file is None else ResultsFile(file, settings)
        results = dict(kept.results) if kept else {}
        pending = [seed for seed in seeds if seed not in results]
        progress = tqdm(total=len(seeds), initial=len(seeds) - len(pending), desc="through the wire", unit="episode")
        with progress, closing(self._episodes(pending)) as episodes:
            for seed, episode in episodes:
                results[seed] = _result(seed, episode, self._policy.contract)
                if kept:
                    kept.add(results[seed])
                if episode.fault:
                    log.warning("Seed %d ended in a fault: %s", seed, " ".join(episode.fault))
                progress.set_postfix_str(f"{sum(result.success for result in results.values())} successes", refresh=False)
                progress.update()
        return [results[seed] for seed in seeds]

    def _episodes(self, seeds: Sequence[int]) -> Generator[tuple[int, WireEpisode], None, None]:
        """Runs episodes on as many robots as there are workers and yields them as they end."""
        count = min(self._workers, len(seeds))
        planning, leaving = threading.Lock(), threading.Event()

        def go_on(*_: object) -> None:
            if leaving.is_set():
                raise RuntimeError("The evaluation was stopped.")

        with ExitStack() as stack:
            robots: queue.SimpleQueue[LockStepRobot] = queue.SimpleQueue()
            for _ in range(count):
                robots.put(open_lock_step_robot(stack, self._policy.contract, self._task))
            pool = stack.enter_context(ThreadPoolExecutor(max(count, 1)))
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.callback(leaving.set)  # Whoever leaves early does not wait for the episodes to end.

            def run(seed: int) -> tuple[int, WireEpisode]:
                robot = robots.get()
                try:
                    session = _OneAtATime(self._policy.session(seed), planning)
                    steps, options = self._execute_steps, self._options
                    episode = robot.run(session, seed, execute_steps=steps, options=options, report=go_on)
                    episode.answer_ms = session.answer_ms
                    return seed, episode
                finally:
                    robots.put(robot)

            for future in as_completed([pool.submit(run, seed) for seed in seeds]):
                yield future.result()


class _OneAtATime:
    """A session that shares its policy with others, and times its answers without the waiting."""

    def __init__(self, session: Session, lock: threading.Lock) -> None:
        self._session, self._lock = session, lock
        self.answer_ms: list[float] = []

    def plan(self, observation: Observation) -> ActionChunk:
        """Waits for the others and plans."""
        with self._lock:
            start = time.perf_counter()
            chunk = self._session.plan(observation)
            self.answer_ms.append((time.perf_counter() - start) * 1e3)
            return chunk


def open_lock_step_robot(stack: ExitStack, contract: Contract, task: Mapping[str, Any]) -> LockStepRobot:
    """Starts an emulated ALOHA and its device process, and turns torque on; `stack` ends both.

    Args:
        stack: Who cleans up.
        contract: Of the policy.
        task: As for `WireEvaluation`.

    Raises:
        RobotNotReadyError: The device process does not accept the robot.
        EmulatorError: The emulator does not start.
    """
    options = task.get("options") or {}
    sizes = {(camera.height, camera.width) for camera in contract.cameras} or {(128, 128)}
    height, width = next(iter(sizes))
    if len(sizes) > 1 or height != width:
        raise ValueError(f"The policy sees pictures of {sorted(sizes)} pixels; emulated cameras draw square ones of one size.")
    emulator = stack.enter_context(
        Emulator.of_task(
            task["name"],
            lock_step=True,
            cameras=[camera.name for camera in contract.cameras],
            image_size=height,
            frame_hz=task["frame_hz"],
            time_limit_s=task["time_limit_s"],
        )
    )
    # Time stands still between cycles, so neither patience nor a soft start has a meaning here.
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=_PATIENCE_S)
    limits = SafetyLimits.of(ALOHA, soft_start_s=0.0, table_height=float(options.get("table_height", 0.0)))
    device = stack.enter_context(DeviceProcess(driver, ALOHA, limits, lock_step=True))
    device.connect()
    device.arm()
    return LockStepRobot(emulator, device, contract, ALOHA)


def _result(seed: int, episode: WireEpisode, contract: Contract) -> EpisodeResult:
    every = round(len(episode.commands) / max(episode.time_s * contract.control_hz, 1.0)) or 1
    commands = np.stack(episode.commands[::every])
    return EpisodeResult(
        seed=seed,
        success=episode.success,
        stage=episode.stage,
        stage_name=episode.stage_name,
        time_s=episode.time_s,
        plans=len(episode.answer_ms),
        inference_ms=float(np.median(episode.answer_ms)),
        acceleration=command_acceleration(commands, contract),
        inference_p95_ms=float(np.percentile(episode.answer_ms, 95)),
        limit_hits=limit_hits(commands, contract),
    )
