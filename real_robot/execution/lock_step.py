"""Episodes through the wire in simulated time: world, device loop and policy wait for each other, so nothing is ever late."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.chunks.chunk_timing import periods_covered
from stringline.policies.execution.executed_session import ExecutedSession
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.device.fault_cause import Cause
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.recording.observation_bridge import ObservationAssembler
from stringline.real_robot.safety.reasons import Mode, Reason, describe, old_cameras


@dataclass
class WireEpisode:
    """How an episode through the wire went.

    Attributes:
        success: Whether the task was done.
        stage: The furthest stage.
        stage_name: Its name.
        time_s: Simulated seconds at the end.
        counts: Cycles in which each reason of the safety filter acted.
        answer_ms: Milliseconds of each answer of the policy.
        commands: (J,) targets sent, one per cycle.
        positions: (J,) joints measured, one per cycle.
        fault: Why the safety filter stopped the episode; empty when it did not.
    """

    success: bool = False
    stage: int = 0
    stage_name: str = ""
    time_s: float = 0.0
    counts: Mapping[Reason, int] = field(default_factory=dict)
    answer_ms: list[float] = field(default_factory=list)
    commands: list[Vector] = field(default_factory=list)
    positions: list[Vector] = field(default_factory=list)
    fault: list[str] = field(default_factory=list)


class LockStepRobot:
    """An emulated robot and its device process, both in lock-step, with torque on.

    Args:
        emulator: Started.
        device: Connected and armed.
        contract: What the policy sees and does.
        embodiment: The body.
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
        options: Mapping[str, float] | None = None,
        report: Callable[[DeviceState, float], None] | None = None,
        done: Callable[[], bool] = lambda: False,
    ) -> WireEpisode:
        """Runs one episode with a receding horizon, until success, the time limit or a fault.

        Args:
            session: Of the policy; plans of an `ExecutedSession` are sent when they would be there.
            seed: Of the world.
            execute_steps: Control periods between two questions, at least 1; None: as many as the
                plan says what to do in.
            options: Of the task.
            report: Gets the state and the simulated seconds after each cycle.
            done: Says that nothing more is wanted, though the task is not done.
        """
        self._begin(seed, options)
        sent_before = self._device.latest().writes
        episode = WireEpisode()
        cycle = 0
        ask_at = 0
        coming: tuple[int, ActionChunk] | None = None
        while True:
            state = self._device.observe(cycle / self._device_hz)
            coming = self._sent(coming, cycle)
            if coming is None and cycle >= ask_at:
                chunk, late = self._plan(session, state, episode)
                steps = execute_steps or max(
                    periods_covered(chunk, state.arms.time, self._control_hz), 1
                )
                ask_at = cycle + steps * self.cycles_per_action
                coming = self._sent((cycle + late * self.cycles_per_action, chunk), cycle)
            state = self._device.act()
            episode.commands.append(state.command)
            episode.positions.append(state.arms.position)
            episode.counts = state.counts
            if state.mode is Mode.FAULT:
                episode.fault = explain_fault(state, self._device)
                return episode
            counts = dict(
                zip(self._device.arms, (state.writes - sent_before).tolist(), strict=True)
            )
            outcome = self._emulator.advance(counts)
            cycle += 1
            episode.success = bool(outcome["success"])
            episode.stage = int(str(outcome["stage"]))
            episode.stage_name = str(outcome["stage_name"])
            episode.time_s = float(str(outcome["time"]))
            if report is not None:
                report(state, episode.time_s)
            if episode.success or outcome["expired"] or done():
                return episode

    def _begin(self, seed: int, options: Mapping[str, float] | None) -> None:
        """Begins a world, the first one twice.

        Until then emulated controllers come up in a time of their own and tell more than anybody
        reads. What does not fit into a socket is lost, and so might be what they tell of a first
        world. From there on nothing is told that is not asked for.
        """
        for _ in range(1 if self._time_stands_still else 2):
            self._emulator.begin(seed, options)
            self._device.begin()
        self._time_stands_still = True

    def _plan(
        self, session: Session, state: DeviceState, episode: WireEpisode
    ) -> tuple[ActionChunk, int]:
        """Returns a plan, and after how many control periods it is there."""
        history = [past.arms for past in self._device.recent() if past.session == state.session]
        observation = self._assembler.build(state.arms, history, self._emulator.frames())
        start = time.perf_counter()
        chunk = session.plan(observation)
        episode.answer_ms.append((time.perf_counter() - start) * 1e3)
        return chunk, session.delay_steps if isinstance(session, ExecutedSession) else 0

    def _sent(
        self, coming: tuple[int, ActionChunk] | None, cycle: int
    ) -> tuple[int, ActionChunk] | None:
        """Sends a plan that is there by that cycle; returns one that is not."""
        if coming is None or coming[0] > cycle:
            return coming
        self._device.send(coming[1])
        return None


def explain_fault(state: DeviceState, device: DeviceProcess) -> list[str]:
    """Returns one sentence for each reason of a fault, by what was wrong when it came up.

    Whoever asks tells it somebody.
    """
    cause = state.cause or Cause.of(state.arms, state.old_cameras)
    device.told |= state.fault_reasons
    return describe(
        state.fault_reasons,
        servos=device.servos,
        arms=device.arms,
        servo_error=cause.servo_error,
        servo_misses=cause.servo_misses,
        lost=cause.lost,
        barred=cause.barred,
        silent_cameras=old_cameras(cause.old_cameras, device.cameras),
    )


def fault_of(device: DeviceProcess) -> list[str]:
    """Returns one sentence for each reason of the fault in force, nothing when there is none."""
    state = device.latest()
    return explain_fault(state, device) if state.mode is Mode.FAULT else []


def largest_difference(one: list[Vector], other: list[Vector]) -> Vector:
    """Returns the largest difference (J,) of two equally timed series of joint vectors, as far as both go."""
    length = min(len(one), len(other))
    return np.asarray(np.abs(np.array(one[:length]) - np.array(other[:length])).max(axis=0))
