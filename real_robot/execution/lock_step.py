"""Episodes in simulated time: world, device process and policy wait for each other (lock-step)."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk, Session, periods_covered
from stringline.policies.execution.execution import ChunkExecutor
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import Cause, DeviceState
from stringline.real_robot.device.scheduling import busy_machine
from stringline.real_robot.driver_interface.interlocks import UNTIMELY
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.recording.observation_bridge import ObservationAssembler
from stringline.real_robot.safety.reasons import (
    NO_FOLLOWING_ERROR,
    OF_TIMING,
    FollowingError,
    Mode,
    Reason,
    describe,
    old_cameras,
)


@dataclass
class LockStepEpisode:
    """The result of an episode in lock-step.

    Attributes:
        stage: Number of the furthest stage.
        time_s: Simulated seconds at the end.
        counts: Cycles in which each reason of the safety filter acted.
        following: Distance of commands to faster targets.
        commands: (J,) targets sent, one per cycle.
        positions: (J,) measured joints, one per cycle.
        fault: Reasons of the fault that ended the episode; empty without one.
    """

    success: bool = False
    stage: int = 0
    stage_name: str = ""
    time_s: float = 0.0
    counts: Mapping[Reason, int] = field(default_factory=dict)
    following: FollowingError = NO_FOLLOWING_ERROR
    answer_ms: list[float] = field(default_factory=list)
    commands: list[Vector] = field(default_factory=list)
    positions: list[Vector] = field(default_factory=list)
    fault: list[str] = field(default_factory=list)


class LockStepRobot:
    """An emulated robot and its device process, both in lock-step, with torque on.

    Args:
        device: Connected and armed device process.
        device_hz: Cycles per second, a multiple of the contract's control rate.
    """

    def __init__(
        self,
        emulator: Emulator,
        device: DeviceProcess,
        contract: Contract,
        embodiment: Embodiment,
        *,
        device_hz: float = 100.0,
    ) -> None:
        cycles = device_hz / contract.control_hz
        if cycles < 1 or abs(cycles - round(cycles)) > 1e-9:
            raise ValueError(
                f"device_hz is {device_hz}; it must be a multiple of the policy's "
                f"{contract.control_hz} Hz."
            )
        self._emulator = emulator
        self._device = device
        self._assembler = ObservationAssembler(contract, embodiment)
        self._device_hz = device_hz
        self.cycles_per_action = round(cycles)
        self._control_hz = contract.control_hz
        self._time_stands_still = False

    def run(
        self,
        session: Session,
        seed: int,
        *,
        execute_steps: int | None,
        options: Mapping[str, Any] | None = None,
        report: Callable[[DeviceState, float], None] | None = None,
        done: Callable[[], bool] = lambda: False,
        planning: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> LockStepEpisode:
        """Runs one episode with a receding horizon, until success, the time limit or a fault.

        Args:
            session: Session of the policy; the delay of a `ChunkExecutor` is simulated.
            seed: Seed of the world.
            execute_steps: Control periods between two plans, at least 1; if None, as many as the
                plan covers.
            options: Options of the task.
            report: Receives the state and the simulated seconds after each cycle.
            done: Ends the episode although the task is not done.
            planning: Returns the context of each plan, such as the lock of a policy that several
                robots use; the time of entering does not count in `answer_ms`.
        """
        self._begin(seed, options)
        sent_before = self._device.latest().writes
        episode = LockStepEpisode()
        cycle = 0
        replan_at = 0
        pending: tuple[int, ActionChunk] | None = None
        while True:
            state = self._device.observe(cycle / self._device_hz)
            pending = self._send_due(pending, cycle)
            if pending is None and cycle >= replan_at:
                chunk, delay = self._plan(session, state, episode, planning)
                steps = execute_steps or max(
                    periods_covered(chunk, state.arms.time, self._control_hz), 1
                )
                replan_at = cycle + steps * self.cycles_per_action
                pending = self._send_due((cycle + delay * self.cycles_per_action, chunk), cycle)
            state = self._device.act()
            episode.commands.append(state.command)
            episode.positions.append(state.arms.position)
            episode.counts = state.counts
            episode.following = state.following
            if state.mode is Mode.FAULT:
                episode.fault = explain_fault(state, self._device)
                return episode
            expired = self._advance((state.writes - sent_before).tolist(), episode)
            cycle += 1
            if report is not None:
                report(state, episode.time_s)
            if episode.success or expired or done():
                return episode

    def _advance(self, writes: list[int], episode: LockStepEpisode) -> bool:
        """Advances the world by one cycle; returns whether its time limit is over."""
        outcome = self._emulator.advance(dict(zip(self._device.arms, writes, strict=True)))
        episode.success = bool(outcome["success"])
        episode.stage = int(str(outcome["stage"]))
        episode.stage_name = str(outcome["stage_name"])
        episode.time_s = float(str(outcome["time"]))
        return bool(outcome["expired"])

    def _begin(self, seed: int, options: Mapping[str, Any] | None) -> None:
        """Begins a world, the first one twice.

        Before the first world emulated controllers start in their own time and send more messages
        than a socket holds, so messages about that world may be lost. After it they send messages
        on request only.
        """
        for _ in range(1 if self._time_stands_still else 2):
            self._emulator.begin(seed, options)
            self._device.begin()
        self._time_stands_still = True

    def _plan(
        self,
        session: Session,
        state: DeviceState,
        episode: LockStepEpisode,
        planning: Callable[[], AbstractContextManager[object]],
    ) -> tuple[ActionChunk, int]:
        """Returns a plan and its delay in control periods."""
        history = [past.arms for past in self._device.recent() if past.session == state.session]
        observation = self._assembler.build(state.arms, history, self._emulator.frames())
        with planning():
            start = time.perf_counter()
            chunk = session.plan(observation)
            episode.answer_ms.append((time.perf_counter() - start) * 1e3)
        return chunk, session.delay_steps if isinstance(session, ChunkExecutor) else 0

    def _send_due(
        self, pending: tuple[int, ActionChunk] | None, cycle: int
    ) -> tuple[int, ActionChunk] | None:
        """Sends a plan that is due in this cycle; returns one that is due later."""
        if pending is None or pending[0] > cycle:
            return pending
        self._device.send(pending[1])
        return None


def explain_fault(state: DeviceState, device: DeviceProcess) -> list[str]:
    """Returns one sentence for each reason of a fault, with its cause, and acknowledges them.

    The caller must report the sentences, since an acknowledged fault can be reset. A busy computer
    is named if it may be the cause.
    """
    cause = state.cause or Cause.of(state.arms, state.old_cameras)
    device.acknowledged |= state.fault_reasons
    of_timing = state.fault_reasons & OF_TIMING or np.isin(cause.interlock, UNTIMELY).any()
    busy = [sentence] if of_timing and (sentence := busy_machine()) else []
    found = describe(
        state.fault_reasons,
        servos=device.servos,
        arms=device.arms,
        servo_error=cause.servo_error,
        servo_misses=cause.servo_misses,
        lost=cause.lost,
        interlock=cause.interlock,
        silent_cameras=old_cameras(cause.old_cameras, device.cameras),
    )
    return found + busy


def fault_of(device: DeviceProcess) -> list[str]:
    """Returns one sentence for each reason of the present fault; see `explain_fault`."""
    state = device.latest()
    return explain_fault(state, device) if state.mode is Mode.FAULT else []
