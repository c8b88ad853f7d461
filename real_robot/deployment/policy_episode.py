"""One episode of a deployed policy, in lock-step or in real time, with its report."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from stringline.policies.chunks.chunk import Policy, Session
from stringline.real_robot.cameras.camera_checks import CameraReport
from stringline.real_robot.deployment.deployment_settings import (
    DeploymentMode,
    DeploymentSettings,
)
from stringline.real_robot.deployment.supervised_run import SupervisedRun
from stringline.real_robot.deployment.supervision import Supervision
from stringline.real_robot.deployment.teleop_deployment import connect_leaders
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.device.dry_run import CommandLog
from stringline.real_robot.device.timing_monitor import TimingMonitor
from stringline.real_robot.device.twin import Divergence
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.environment_reset import reset_environment
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.operator.live_status import (
    LiveStatus,
    print_line,
    report_counts,
    report_fault,
    report_outcome,
)
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.recording.deployment_log import Recording
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot, arm_device

_TWIN_APPROACH_S = 1.0


@dataclass(frozen=True)
class PolicyEpisode:
    """One episode of a deployed policy.

    Attributes:
        view: Receives every state that is shown.
        stack: Ends what the episode starts.
    """

    settings: DeploymentSettings
    factory: RobotFactory
    policy: Policy
    robot: ArmedRobot
    recording: Recording | None
    view: Callable[[DeviceState], None]
    stack: ExitStack

    def run_in_lock_step(self, emulator: Emulator) -> bool:
        """Runs the episode in lock-step; returns whether the task was done."""
        settings = self.settings
        robot = LockStepRobot(
            emulator,
            self.robot.device,
            self.policy.contract,
            self.factory.embodiment,
            device_hz=settings.robot.device_hz,
        )
        commands = self._command_log()
        with LiveStatus(settings.task.time_limit_s, self.view) as status:

            def report(state: DeviceState, seconds: float) -> None:
                status.show(state, seconds)
                if commands is not None:
                    commands.note([state])
                if self.recording is not None:
                    self.recording.follow(state)

            result = robot.run(
                settings.execution.session(
                    self.policy, settings.seed, execute_steps=settings.execute_steps
                ),
                settings.seed,
                execute_steps=settings.execution.replan_after(settings.execute_steps),
                options=settings.options,
                report=report,
            )
        report_counts(result.counts, len(result.commands), result.following)
        report_fault(result.fault)
        report_outcome(result.success, result.stage_name, result.time_s)
        self._report_commands(commands)
        if self.recording is not None:
            print_line(self.recording.commit(result.success, {"fault": result.fault}))
        return result.success

    def run_in_real_time(self) -> bool:
        """Runs the episode in real time.

        Returns:
            Whether the task was done, or on real arms whether there was no fault.
        """
        device = self.robot.device
        embodiment = self.factory.embodiment
        settings = self.settings
        robot = RealTimeRobot(device, self.robot.frames, self.policy.contract, embodiment)
        commands = self._command_log()
        divergence = self._start_twin()
        supervision = self._supervision(commands, divergence)
        start = time.monotonic()
        steps = settings.execution.replan_after(settings.execute_steps)
        run = SupervisedRun(robot, self._session, steps, supervision)
        timing = None
        if device.incidents is not None:
            timing = TimingMonitor.of(device, embodiment, 1.0 / settings.robot.device_hz)
        result = self._supervised(run, timing)
        _report_run(result, settings.robot.device_hz)
        for line in () if timing is None else timing.lines()[1:]:
            print_line(line)
        self._report_commands(commands)
        for line in () if divergence is None else divergence.summary(start):
            print_line(line)
        return self._finish(result)

    def _session(self) -> Session:
        settings = self.settings
        return settings.execution.session(
            self.policy,
            settings.seed,
            execute_steps=settings.execute_steps,
            clock=time.monotonic,
        )

    def _supervised(self, run: SupervisedRun, timing: TimingMonitor | None) -> RealTimeEpisode:
        emulator = self.robot.emulator
        with LiveStatus(self.settings.seconds, self.view) as status:

            def report(state: DeviceState, seconds: float) -> None:
                status.show(state, seconds)
                if timing is not None:
                    timing.update()
                if self.recording is not None:
                    self.recording.follow(state)

            return run.run(
                self.settings.seconds,
                done=lambda: emulator is not None and bool(emulator.outcome()["success"]),
                report=report,
            )

    def _start_twin(self) -> Divergence | None:
        """Starts a twin at the measured pose of the arms, in the mode `shadow`."""
        settings = self.settings
        if settings.mode is not DeploymentMode.SHADOW:
            return None
        device = self.robot.device
        emulator = self.stack.enter_context(self.factory.twin_emulator())
        twin = self.stack.enter_context(self.factory.twin(emulator))
        arm_device(twin)
        reset_environment(emulator, twin, settings.seed, settings.options)
        Approach(twin, self.factory.embodiment).to(
            device.latest().arms.position, _TWIN_APPROACH_S, "where the arms stand"
        )
        device.twin = twin
        return Divergence(self.factory.embodiment)

    def _supervision(
        self, commands: CommandLog | None, divergence: Divergence | None
    ) -> Supervision:
        device = self.robot.device
        keys = self.stack.enter_context(TerminalKeys(held=self.robot.held))
        watchers: list[Callable[[list[DeviceState]], None]] = [
            CameraReport(device.cameras, print_line).note
        ]
        if commands is not None:
            watchers.append(commands.note)
        if divergence is not None and device.twin is not None:
            twin = device.twin
            watchers.append(lambda states: divergence.note(states, twin.recent()))
        leaders = None
        if self.settings.take_over:
            leaders, _ = connect_leaders(self.factory, device, self.stack)
        dry = self.settings.mode is DeploymentMode.DRY_RUN
        supervision = Supervision(
            device,
            self.factory.embodiment,
            keys,
            home_s=0.0 if dry else self.settings.robot.home_s,
            held_key=self.robot.held is not None,
            watchers=tuple(watchers),
            leaders=leaders,
            reconnect_s=self.settings.reconnect_s,
        )
        if self.recording is not None:
            supervision = replace(supervision, record_by_hand=self.recording.follow_by_hand)
        supervision.report_keys(available=keys.available)
        return supervision

    def _command_log(self) -> CommandLog | None:
        if self.settings.mode is not DeploymentMode.DRY_RUN:
            return None
        return CommandLog(self.factory.embodiment, self.settings.output / "commands.csv")

    def _report_commands(self, commands: CommandLog | None) -> None:
        if commands is not None:
            commands.close()
            for line in commands.summary():
                print_line(line)
            print_line(f"Commands of all cycles: {self.settings.output / 'commands.csv'}")

    def _finish(self, result: RealTimeEpisode) -> bool:
        """Reports the outcome and commits the recording; for the result see `run_in_real_time`."""
        success = None
        if self.robot.emulator is not None:
            outcome = self.robot.emulator.outcome()
            success = bool(outcome["success"])
            report_outcome(success, str(outcome["stage_name"]), result.seconds)
        if self.recording is not None:
            about = {"fault": result.fault, "late_cycles": result.late}
            print_line(self.recording.commit(success, about))
        return not result.fault if success is None else success


def _report_run(result: RealTimeEpisode, device_hz: float) -> None:
    print_line(
        f"{result.plans} plans, {result.refused} refused, {result.waits} waits for images, "
        f"{result.late} late cycles."
    )
    if result.waited_for:
        cameras = ", ".join(f"{name} ({n})" for name, n in result.waited_for.most_common())
        print_line(f"Waited for images of {cameras}.")
    report_counts(result.counts, round(result.seconds * device_hz), result.following)
