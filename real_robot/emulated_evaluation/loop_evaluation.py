"""Evaluates a policy on emulated arms behind safety filter, driver and real protocol."""

import logging
import queue
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.contract.contract import Camera, Contract
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import MEASURED, ChunkExecutor, Execution
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.emulators.program.emulator_client import square_size
from stringline.real_robot.execution.lock_step import LockStepEpisode, LockStepRobot
from stringline.real_robot.robots.backends import emulated_backend
from stringline.real_robot.robots.robot_session import arm_device
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import run_seeds
from stringline.sim.robots.arm_appearance import (
    PRIMITIVES,
    ROBOT_MODEL,
    RobotModel,
    check_robot_model,
)
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_versions import result_versions

log = logging.getLogger(__name__)

_PERIOD_S = 0.01
_DEFAULT_TRANSPORTS = (None, "fri")


class LoopEvaluation:
    """Runs a policy on seeds, on emulated arms in lock-step.

    The worlds are those of a simulation with the same seeds, but every action passes the safety
    filter, the driver and the arms' protocol.

    Args:
        execute_steps: Control periods between two plans; if None, whole chunks.
        execution: How plans are executed; if None, a receding horizon without delay.
        instruction: Added to the observations; if None, none is added.
        workers: Number of parallel emulated robots, each in two processes; results do not depend
            on it.
        transport: Transport of KUKA arms, `fri` or `lcm`; if None, FRI.

    Raises:
        ValueError: The policy does not fit the robot, the execution needs real time, or an argument
            is invalid.
    """

    def __init__(
        self,
        policy: Policy,
        task: TaskSettings,
        *,
        execute_steps: int | None,
        execution: Execution | None = None,
        instruction: str | None = None,
        workers: int = 2,
        transport: str | None = None,
        robot_model: RobotModel = PRIMITIVES,
    ) -> None:
        if execute_steps is not None:
            COUNT.check(execute_steps=execute_steps)
        COUNT.check(workers=workers)
        check_robot_model(robot_model)
        self._execution = execution or Execution()
        check_delay(self._execution)
        self._policy = policy
        self._instruction = instruction
        self._task = task
        self._execute_steps = execute_steps
        self._workers = workers
        self._transport = transport
        self._robot_model: RobotModel = robot_model
        cameras = [
            Camera(camera.name, camera.height, camera.width, "simulated")
            for camera in policy.contract.cameras
        ]
        embodiment = emulated_backend(policy.contract.embodiment, transport).embodiment
        offered = embodiment.contract(cameras, float(task.control_hz))
        if problems := policy.contract.incompatibilities(offered):
            raise ValueError(
                f"The policy does not fit the emulated {embodiment.name}. {' '.join(problems)}"
            )

    def run(
        self, seeds: Sequence[int], file: Path | None = None, about: Mapping[str, Any] | None = None
    ) -> list[EpisodeResult]:
        """Runs the episodes of the seeds that have no result yet.

        Args:
            seeds: Distinct seeds.
            file: See `run_seeds`.
            about: The evaluated policy and task, plain JSON; see `run_seeds`.
        """
        known = {
            "emulated_hardware": True,
            "execute_steps": self._execute_steps,
            "options": dict(self._task.options),
            **self._execution.about(),
            **result_versions(self._task.name, self._task.options),
        }
        # Results with default values lack these keys, as those of earlier versions do.
        if self._transport not in _DEFAULT_TRANSPORTS:
            known["transport"] = self._transport
        if self._robot_model != PRIMITIVES:
            known[ROBOT_MODEL] = self._robot_model
        return run_seeds(
            seeds,
            self._results,
            file=file,
            about=known | dict(about or {}),
            description="through the real protocol",
        )

    def _results(self, seeds: Sequence[int]) -> Generator[EpisodeResult, None, None]:
        """Runs episodes on parallel robots and yields each result when its episode ends."""
        if not seeds:
            return
        # A policy that cannot be executed in this way fails here, before robots are started.
        self._executor(seeds[0])
        planning = threading.Lock()
        stopped = threading.Event()
        with ExitStack() as stack:
            robots: queue.SimpleQueue[LockStepRobot] = queue.SimpleQueue()
            for _ in range(min(self._workers, len(seeds))):
                robots.put(self._open_robot(stack))
            pool = stack.enter_context(ThreadPoolExecutor(min(self._workers, len(seeds))))
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            # On an early exit, running episodes are not completed.
            stack.callback(stopped.set)

            def run(seed: int) -> tuple[int, LockStepEpisode]:
                robot = robots.get()
                try:
                    return seed, self._episode(robot, seed, planning, stopped)
                finally:
                    robots.put(robot)

            for future in as_completed([pool.submit(run, seed) for seed in seeds]):
                seed, episode = future.result()
                yield _result(seed, episode, self._policy.contract)
                if episode.fault:
                    log.warning("Seed %d ended in a fault: %s", seed, " ".join(episode.fault))

    def _executor(self, seed: int) -> ChunkExecutor:
        return ChunkExecutor(
            self._policy,
            seed,
            self._execution,
            execute_steps=self._execute_steps,
            instruction=self._instruction,
        )

    def _open_robot(self, stack: ExitStack) -> LockStepRobot:
        return open_lock_step_robot(
            stack, self._policy.contract, self._task, self._transport, self._robot_model
        )

    def _episode(
        self, robot: LockStepRobot, seed: int, planning: threading.Lock, stopped: threading.Event
    ) -> LockStepEpisode:
        def check_stopped(*_: object) -> None:
            if stopped.is_set():
                raise RuntimeError("The evaluation was stopped.")

        return robot.run(
            self._executor(seed),
            seed,
            execute_steps=self._execution.replan_after(self._execute_steps),
            options=self._task.options,
            report=check_stopped,
            planning=lambda: planning,
        )


def check_delay(execution: Execution) -> None:
    """Checks that an execution does not measure its delay, since in lock-step the world waits.

    Raises:
        ValueError: The execution measures its delay.
    """
    if execution.delay_s == MEASURED:
        raise ValueError(
            "In lock-step the world waits for the policy, so a delay cannot be measured: give "
            "execution.delay_s in seconds."
        )


def open_lock_step_robot(
    stack: ExitStack,
    contract: Contract,
    task: TaskSettings,
    transport: str | None = None,
    robot_model: RobotModel = PRIMITIVES,
) -> LockStepRobot:
    """Starts emulated arms and their device process in lock-step, with torque on.

    The stack ends both; see `LoopEvaluation` for the other arguments.
    """
    backend = emulated_backend(contract.embodiment, transport)
    emulator = stack.enter_context(
        backend.emulator(
            lock_step=True,
            cameras=[camera.name for camera in contract.cameras],
            image_size=square_size(contract.cameras),
            task=task.name,
            frame_hz=task.frame_hz,
            time_limit_s=task.time_limit_s,
            robot_model=robot_model,
        )
    )
    driver = backend.driver(emulator.ports, period_s=_PERIOD_S, lock_step=True, read_only=False)
    # Time stands still between cycles, so a soft start would have no effect.
    table_height = _fixed_height(task.options.get("table_height", 0.0))
    # Policies were trained on demonstrations that are faster than real arms may be by default.
    limits = backend.limits(soft_start_s=0.0, table_height=table_height, cartesian_speed=None)
    device = stack.enter_context(
        DeviceProcess(driver, backend.embodiment, limits, period_s=_PERIOD_S, lock_step=True)
    )
    arm_device(device)
    return LockStepRobot(emulator, device, contract, backend.embodiment)


def _result(seed: int, episode: LockStepEpisode, contract: Contract) -> EpisodeResult:
    every = round(len(episode.commands) / max(episode.time_s * contract.control_hz, 1.0)) or 1
    return EpisodeResult.measured(
        np.stack(episode.commands[::every]),
        episode.answer_ms,
        contract,
        seed=seed,
        success=episode.success,
        stage=episode.stage,
        stage_name=episode.stage_name,
        time_s=episode.time_s,
    )


def _fixed_height(value: object) -> float:
    """Returns the height of the table, which the safety limits of all episodes contain."""
    if not isinstance(value, int | float):
        raise ValueError(
            f"table_height is {value}; in an emulated-hardware evaluation it is one number, in "
            f"metres."
        )
    return float(value)
