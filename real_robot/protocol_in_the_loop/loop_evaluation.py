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

from stringline.datasets.contract.arguments import COUNT
from stringline.datasets.contract.contract import Camera, Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, Policy, Session
from stringline.policies.chunks.prefix import Commitment, can_commit, plan_with
from stringline.policies.execution.execution import MEASURED, Execution
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.emulators.program.emulator_client import square_size
from stringline.real_robot.execution.lock_step import LockStepRobot, WireEpisode
from stringline.real_robot.robots.backends import emulated_arms
from stringline.sim.evaluation.metrics import limit_hits
from stringline.sim.evaluation.results import EpisodeResult, ResultsFile
from stringline.sim.evaluation.runner import command_acceleration
from stringline.sim.robots.robot_model import (
    PRIMITIVES,
    ROBOT_MODEL,
    RobotModel,
    demand_robot_model,
)

log = logging.getLogger(__name__)

_PERIOD_S = 0.01
_USUAL = (None, "fri")


class WireEvaluation:
    """Runs a policy on seeds, on emulated arms in lock-step.

    Args:
        policy: What is measured.
        task: As in `configs/task`: name, image_size, control_hz, frame_hz, time_limit_s, options.
        execute_steps: Control periods between two plans; None: whole chunks.
        execution: What plans are blended with, and when they are in force; None: a receding horizon
            without delay.
        workers: Emulated robots at a time, each in two processes; they do not change the results.
        transport: Of KUKA arms, `fri` or `lcm`; None: as is usual for the body.
        robot_model: What the arms are drawn with.

    Raises:
        ValueError: The policy does not fit the robot, the execution has no meaning here, or there
            is no such number or model.
    """

    def __init__(
        self,
        policy: Policy,
        task: Mapping[str, Any],
        *,
        execute_steps: int | None,
        execution: Execution | None = None,
        workers: int = 2,
        transport: str | None = None,
        robot_model: RobotModel = PRIMITIVES,
    ) -> None:
        if execute_steps is not None:
            COUNT.check(execute_steps=execute_steps)
        COUNT.check(workers=workers)
        demand_robot_model(robot_model)
        self._execution = execution or Execution()
        refuse_measured(self._execution)
        self._policy = policy
        self._task = dict(task)
        self._execute_steps = execute_steps
        self._workers = workers
        self._options: dict[str, float] = dict(task.get("options") or {})
        self._transport = transport
        self._robot_model: RobotModel = robot_model
        cameras = [
            Camera(camera.name, camera.height, camera.width, "simulated")
            for camera in policy.contract.cameras
        ]
        body = emulated_arms(policy.contract.embodiment, transport).body
        if misfits := policy.contract.misfits(body.contract(cameras, float(task["control_hz"]))):
            raise ValueError(
                f"The policy does not fit the emulated {body.name}. {' '.join(misfits)}"
            )

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
            ValueError: The file belongs to another evaluation, or the policy cannot be executed
                like that.
            RuntimeError: A robot failed.
        """
        if len(set(seeds)) != len(seeds):
            raise ValueError("The seeds of an evaluation must differ from each other.")
        known = {
            "wire": True,
            "execute_steps": self._execute_steps,
            "options": self._options,
            **self._execution.about(),
        }
        # What was measured before there was a choice was measured over the usual one.
        other = {} if self._transport in _USUAL else {"transport": self._transport}
        other |= {} if self._robot_model == PRIMITIVES else {ROBOT_MODEL: self._robot_model}
        settings = known | other | dict(about or {})
        kept = None if file is None else ResultsFile(file, settings)
        results = dict(kept.results) if kept else {}
        pending = [seed for seed in seeds if seed not in results]
        if pending:  # What the policy cannot do is refused before robots are started.
            self._execution.session(self._policy, pending[0], execute_steps=self._execute_steps)
        progress = tqdm(
            total=len(seeds),
            initial=len(seeds) - len(pending),
            desc="through the wire",
            unit="episode",
        )
        with progress, closing(self._episodes(pending)) as episodes:
            for seed, episode in episodes:
                results[seed] = _result(seed, episode, self._policy.contract)
                if kept:
                    kept.add(results[seed])
                if episode.fault:
                    log.warning("Seed %d ended in a fault: %s", seed, " ".join(episode.fault))
                progress.set_postfix_str(
                    f"{sum(result.success for result in results.values())} successes", refresh=False
                )
                progress.update()
        return [results[seed] for seed in seeds]

    def _episodes(self, seeds: Sequence[int]) -> Generator[tuple[int, WireEpisode], None, None]:
        """Runs episodes on as many robots as there are workers and yields them as they end."""
        count = min(self._workers, len(seeds))
        planning = threading.Lock()
        leaving = threading.Event()

        def go_on(*_: object) -> None:
            if leaving.is_set():
                raise RuntimeError("The evaluation was stopped.")

        with ExitStack() as stack:
            robots: queue.SimpleQueue[LockStepRobot] = queue.SimpleQueue()
            for _ in range(count):
                how = self._transport, self._robot_model
                robots.put(open_lock_step_robot(stack, self._policy.contract, self._task, *how))
            pool = stack.enter_context(ThreadPoolExecutor(max(count, 1)))
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.callback(
                leaving.set
            )  # Whoever leaves early does not wait for the episodes to end.

            def run(seed: int) -> tuple[int, WireEpisode]:
                robot = robots.get()
                try:
                    shared = OneAtATime(self._policy, planning)
                    session = self._execution.session(
                        shared, seed, execute_steps=self._execute_steps
                    )
                    steps = self._execution.ask_after(self._execute_steps)
                    options = self._options
                    episode = robot.run(
                        session, seed, execute_steps=steps, options=options, report=go_on
                    )
                    episode.answer_ms = shared.answer_ms
                    return seed, episode
                finally:
                    robots.put(robot)

            for future in as_completed([pool.submit(run, seed) for seed in seeds]):
                yield future.result()


def refuse_measured(execution: Execution) -> None:
    """Refuses to measure a delay where the world waits.

    Raises:
        ValueError: The execution asks for it.
    """
    if execution.delay_s == MEASURED:
        raise ValueError(
            "In lock-step the world waits for the policy, so there is no delay to measure: give "
            "execution.delay_s in seconds."
        )


class OneAtATime:
    """A policy whose sessions wait for each other.

    Args:
        policy: Who plans.
        lock: The same for all of them.

    Attributes:
        answer_ms: How long answers took, without the waiting.
    """

    def __init__(self, policy: Policy, lock: threading.Lock) -> None:
        self._policy = policy
        self._lock = lock
        self.answer_ms: list[float] = []

    @property
    def contract(self) -> Contract:
        """That of the policy."""
        return self._policy.contract

    def session(self, seed: int) -> Session:
        """Begins an episode of the policy."""
        return _Waiting(self._policy.session(seed), self._lock, self.answer_ms)


class _Waiting:
    """A session that waits for those of others."""

    def __init__(self, session: Session, lock: threading.Lock, answer_ms: list[float]) -> None:
        self._session = session
        self._lock = lock
        self._answer_ms = answer_ms
        self.commits = can_commit(session)

    def plan(self, observation: Observation, committed: Commitment | None = None) -> ActionChunk:
        """Waits for the others and plans."""
        with self._lock:
            start = time.perf_counter()
            chunk = plan_with(self._session, observation, committed)
            self._answer_ms.append((time.perf_counter() - start) * 1e3)
            return chunk


def open_lock_step_robot(
    stack: ExitStack,
    contract: Contract,
    task: Mapping[str, Any],
    transport: str | None = None,
    robot_model: RobotModel = PRIMITIVES,
) -> LockStepRobot:
    """Starts the emulated arms of the contract's body and their device process, and arms them; `stack` ends both.

    Args:
        stack: Who cleans up.
        contract: Of the policy.
        task: As for `WireEvaluation`.
        transport: As for `WireEvaluation`.
        robot_model: As for `WireEvaluation`.

    Raises:
        RobotNotReadyError: The device process does not accept the robot.
        EmulatorError: The emulator does not start.
    """
    options = task.get("options") or {}
    settings = {
        "task": task["name"],
        "frame_hz": task["frame_hz"],
        "time_limit_s": task["time_limit_s"],
    }
    arms = emulated_arms(contract.embodiment, transport)
    emulator = stack.enter_context(
        arms.emulator(
            lock_step=True,
            cameras=[camera.name for camera in contract.cameras],
            image_size=square_size(contract.cameras),
            settings=settings | {"robot_model": robot_model},
        )
    )
    # Time stands still between cycles, so a soft start has no meaning here.
    driver = arms.driver(emulator.ports, period_s=_PERIOD_S, lock_step=True, read_only=False)
    limits = arms.limits(soft_start_s=0.0, table_height=float(options.get("table_height", 0.0)))
    device = stack.enter_context(
        DeviceProcess(driver, arms.body, limits, period_s=_PERIOD_S, lock_step=True)
    )
    device.connect()
    device.arm()
    return LockStepRobot(emulator, device, contract, arms.body)


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
