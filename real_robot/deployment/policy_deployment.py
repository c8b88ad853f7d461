"""The deployment of a policy: checks, one episode in real time or in lock-step, and a report.

A deployment leaves two records: the incident log of its device process, and an episode in a store.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.encoders.training.checkpoint import code_version
from stringline.policies.checkpoints.load import checkpoint_digest, is_address, open_policy
from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import MEASURED
from stringline.real_robot.cameras.cameras import CameraReport
from stringline.real_robot.deployment.deployment_settings import (
    LEADERS,
    DeploymentMode,
    DeploymentSettings,
)
from stringline.real_robot.deployment.live_view import check_view, viewing
from stringline.real_robot.deployment.operated_session import (
    OperatedSession,
    Operator,
    open_operator,
)
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision, go_home
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.device.dry_run import CommandLog
from stringline.real_robot.device.process_monitor import TimingMonitor
from stringline.real_robot.device.twin import Divergence
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.execution.real_time import (
    RealTimeEpisode,
    RealTimeRobot,
    reset_environment,
)
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.live_status import (
    LiveStatus,
    print_line,
    report_counts,
    report_fault,
    report_outcome,
)
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import (
    ArmedRobot,
    RobotSession,
    approach_home,
    arm_device,
)
from stringline.sim.tasks.task_registry import make_task


def log_of_policy(log: LogPlan, checkpoint: str) -> LogPlan:
    """Returns a log whose header names the code and the checkpoint, unless that is an address."""
    about = {**log.about, "code": code_version()}
    if checkpoint and not is_address(checkpoint):
        with suppress(ValueError):  # A check reports a missing checkpoint.
            about["checkpoint"] = checkpoint_digest(checkpoint)
    return replace(log, about=about)


class Recording:
    """The recording of one episode."""

    def __init__(self, recorder: DeploymentRecorder, frames: FrameSource) -> None:
        self._recorder = recorder
        self._frames = frames
        self._by_hand = False
        self._committed = False

    def follow(self, state: DeviceState) -> None:
        """Passes new images to the recorder, which reads all else from the log's ring."""
        self._follow(state, by_hand=False)

    def follow_by_hand(self, state: DeviceState, _: Vector) -> None:
        """Does the same while a person leads the arms, which is marked as an intervention."""
        self._follow(state, by_hand=True)

    def _follow(self, state: DeviceState, *, by_hand: bool) -> None:
        if by_hand != self._by_hand:
            self._by_hand = by_hand
            self._recorder.mark(state.arms.time, by_hand=by_hand)
        self._recorder.look(state, self._frames)

    def discard(self) -> str:
        """Leaves the episode out of the store, and says so."""
        self._committed = True
        return "The recording is discarded."

    def commit(self, success: bool | None, extra: dict[str, object]) -> str:
        """Adds the episode to the store and describes the result; `success` is None if unknown."""
        if self._committed:
            return ""
        self._committed = True
        recorded = self._recorder.commit(success, extra)
        if recorded.problem:
            return f"No episode was recorded: {recorded.problem}."
        lost = f" {recorded.lost} records came too late for it." if recorded.lost else ""
        return f"Recorded as {recorded.name}, {recorded.steps} steps.{lost}"


@contextmanager
def recording(
    device: DeviceProcess,
    store: Path,
    attributes: EpisodeAttributes,
    embodiment: Embodiment,
    frames: FrameSource,
    *,
    frame_hz: float,
) -> Iterator[Recording]:
    """Records the next episode of a device process, also one that ends with an error or Ctrl-C."""
    with DeploymentRecorder(device, store, attributes, embodiment, frame_hz=frame_hz) as recorder:
        episode = Recording(recorder, frames)
        try:
            yield episode
        finally:
            episode.commit(None, {"ended": "by an error or an interruption"})


_TWIN_APPROACH_S = 1.0


@dataclass(frozen=True)
class PolicyEpisode:
    """One episode of a deployed policy.

    Attributes:
        instruction: The instruction of the policy.
        view: Receives every state that is shown.
        stack: Ends what the episode starts.
        session: The session of the operator; None in lock-step.
    """

    settings: DeploymentSettings
    factory: RobotFactory
    policy: Policy
    instruction: str
    robot: ArmedRobot
    recording: Recording | None
    view: Callable[[DeviceState], None]
    stack: ExitStack
    session: OperatedSession | None = None

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
                settings.executor(self.policy, self.instruction),
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
        assert self.session is not None
        robot = RealTimeRobot(device, self.robot.frames, self.policy.contract, embodiment)
        commands = self._command_log()
        divergence = self._start_twin()
        supervision = self._supervision(self.session.operator, commands, divergence)
        start = time.monotonic()
        steps = settings.execution.replan_after(settings.execute_steps)
        run = SupervisedRun(
            robot,
            lambda: settings.executor(self.policy, self.instruction, clock=time.monotonic),
            steps,
            supervision,
        )
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
        return self._finish(result, self.session)

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
        self, operator: Operator, commands: CommandLog | None, divergence: Divergence | None
    ) -> Supervision:
        device = self.robot.device
        watchers: list[Callable[[list[DeviceState]], None]] = [
            CameraReport(device.cameras, print_line).note
        ]
        if operator.page is not None:
            watchers.append(operator.page.show)
        if commands is not None:
            watchers.append(commands.note)
        if divergence is not None and device.twin is not None:
            twin = device.twin
            watchers.append(lambda states: divergence.note(states, twin.recent()))
        dry = self.settings.mode is DeploymentMode.DRY_RUN
        supervision = Supervision(
            device,
            self.factory.embodiment,
            operator.keys,
            home_s=0.0 if dry else self.settings.robot.home_s,
            held_key=self.robot.held is not None,
            watchers=tuple(watchers),
            leaders=operator.leaders,
            reconnect_s=self.settings.reconnect_s,
        )
        if self.recording is not None:
            supervision = replace(supervision, record_by_hand=self.recording.follow_by_hand)
        supervision.report_keys(available=operator.keys.available)
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

    def _finish(self, result: RealTimeEpisode, session: OperatedSession) -> bool:
        """Reports the outcome and commits the recording; for the result see `run_in_real_time`."""
        success = None
        if self.robot.emulator is not None:
            outcome = self.robot.emulator.outcome()
            success = bool(outcome["success"])
            report_outcome(success, str(outcome["stage_name"]), result.seconds)
        success, kept = session.label(success, helped=bool(result.takeovers))
        if self.recording is not None:
            about = {"fault": result.fault, "late_cycles": result.late}
            recording = self.recording
            print_line(recording.commit(success, about) if kept else recording.discard())
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


class PolicyDeployment:
    """Runs a checkpoint on a robot.

    Args:
        settings: Settings of the deployment, in the mode `run`, `dry_run` or `shadow`.
    """

    def __init__(self, settings: DeploymentSettings) -> None:
        _check_settings(settings)
        self._settings = settings
        self._factory = RobotFactory(settings.robot)
        self._dry = settings.mode is DeploymentMode.DRY_RUN

    def run(self) -> bool:
        """Checks, runs the episode and reports its result.

        Returns:
            Whether the task was done in simulation; on real arms, whether there was no fault.
        """
        settings = self._settings
        mode = "" if settings.mode is DeploymentMode.RUN else f", mode {settings.mode}"
        print_line(f"Deploying to {self._factory.name}{mode}")
        checklist = Checklist()
        opened = checklist.result(
            "checkpoint",
            lambda: open_policy(settings.checkpoint, device=settings.device)[0],
            lambda _: settings.checkpoint,
        )
        wanted = None
        fitting = opened
        if opened.passed:
            wanted = opened.value.contract.cameras
            fitting = checklist.result(
                "checkpoint fits the robot", lambda: self._checked(opened.value)
            )
        log = None if settings.log is None else log_of_policy(settings.log, settings.checkpoint)
        session = RobotSession(self._factory, checklist, log=log, read_only=self._dry)
        session.check(with_leaders=settings.take_over == LEADERS)
        try:
            with session:
                robot = session.start(wanted)
                with ExitStack() as stack:
                    return self._run(fitting.value, robot, stack)
        finally:
            for line in session.summary():
                print_line(line)

    def _checked(self, policy: Policy) -> Policy:
        """Returns the policy, if it fits the robot, its instruction and its execution."""
        settings = self._settings
        execution = RecordedExecution(settings.execution, settings.execute_steps)
        prompt = {} if settings.prompt is None else {"prompt": settings.prompt}
        self._record.warn({"task": settings.task.name, **prompt, **execution.options()})
        contract = policy.contract
        if problems := contract.incompatibilities(self._factory.contract(contract)):
            raise ValueError("\n".join(problems))
        # An execution or an instruction that the policy lacks fails here, before anything moves.
        settings.executor(policy, self._instruction())
        return policy

    @cached_property
    def _record(self) -> TrainingRecord:
        return TrainingRecord.read(self._settings.checkpoint)

    def _instruction(self) -> str:
        """Returns the prompt, or the instruction of the task in the training, or of the task."""
        if self._settings.prompt is not None:
            return self._settings.prompt
        task = self._settings.task.name
        return self._record.tasks.get(task) or make_task(task).instruction

    def _run(self, policy: Policy, robot: ArmedRobot, stack: ExitStack) -> bool:
        settings = self._settings
        view = stack.enter_context(
            viewing(
                settings.view,
                robot.device,
                policy.contract,
                self._factory.embodiment,
                robot.frames,
                period_s=1.0 / settings.robot.device_hz,
                frame_hz=settings.task.frame_hz,
            )
        )
        if not settings.robot.lock_step:
            return self._run_session(policy, robot, view, stack)
        assert robot.emulator is not None
        text = self._instruction()
        with self._recording(policy, robot, settings.seed, text) as kept:
            episode = PolicyEpisode(settings, self._factory, policy, text, robot, kept, view, stack)
            return episode.run_in_lock_step(robot.emulator)

    def _run_session(
        self,
        policy: Policy,
        robot: ArmedRobot,
        view: Callable[[DeviceState], None],
        stack: ExitStack,
    ) -> bool:
        """Runs the episodes of a session; returns whether all of them were done."""
        settings = self._settings
        operator = open_operator(settings, self._factory, robot, stack)
        texts = list(dict.fromkeys([self._instruction(), *self._record.tasks.values()]))
        session = OperatedSession(
            operator, lambda: self._is_home(robot, operator), settings.episodes, texts
        )
        done = True
        try:
            while session.begins_another():
                chosen = replace(settings, seed=settings.seed + session.number)
                self._prepare(robot, chosen.seed, first=session.number == 0)
                text = session.instruction
                with (
                    self._recording(policy, robot, chosen.seed, text) as kept,
                    ExitStack() as parts,
                ):
                    episode = PolicyEpisode(
                        chosen, self._factory, policy, text, robot, kept, view, parts, session
                    )
                    done = episode.run_in_real_time() and done
        finally:
            session.report()
        return done

    def _is_home(self, robot: ArmedRobot, operator: Operator) -> bool:
        """Moves real arms to their home pose; returns whether they have arrived."""
        seconds = self._settings.robot.home_s
        if robot.emulator is not None or not seconds:
            return True
        return go_home(robot.device, self._factory.embodiment, operator.keys, seconds)

    def _recording(
        self, policy: Policy, robot: ArmedRobot, seed: int, instruction: str
    ) -> AbstractContextManager[Recording | None]:
        settings = self._settings
        # Commands of a dry run were not sent, so they cannot serve as training data.
        if settings.record is None or self._dry or robot.device.incidents is None:
            return nullcontext()
        attributes = EpisodeAttributes(
            policy.contract,
            settings.task.name,
            seed,
            source="deployment",
            instruction=instruction,
            extra={
                "checkpoint": settings.checkpoint,
                "mode": settings.mode.value,
                "code": code_version(),
                "robot": self._factory.name,
            },
        )
        return recording(
            robot.device,
            settings.record,
            attributes,
            self._factory.embodiment,
            robot.frames,
            frame_hz=settings.task.frame_hz,
        )

    def _prepare(self, robot: ArmedRobot, seed: int, *, first: bool) -> None:
        """Resets the environment, or moves the arms to their home pose before the first episode."""
        if robot.emulator is not None:
            reset_environment(robot.emulator, robot.device, seed, self._settings.options)
        elif first and not self._dry:
            approach_home(robot, self._factory)


def _check_settings(settings: DeploymentSettings) -> None:
    if settings.mode is DeploymentMode.TELEOP:
        raise ValueError("mode=teleop has no policy; see TeleopDeployment.")
    if settings.mode is DeploymentMode.CALIBRATE:
        raise ValueError("mode=calibrate has no policy; see CalibrationSession.")
    if settings.mode is DeploymentMode.CHECK:
        raise ValueError("mode=check has no policy; see LatencyCheck.")
    if settings.view is not None:
        check_view(settings.view)
    if settings.robot.lock_step and settings.execution.delay_s == MEASURED:
        raise ValueError(
            "In lock-step the world waits for the policy, so a delay cannot be measured: give "
            "execution.delay_s in seconds, or run in real time with robot.lock_step=false."
        )
    shadow = settings.mode is DeploymentMode.SHADOW
    several = settings.episodes > 1
    if settings.robot.lock_step and (shadow or several or settings.take_over is not None):
        raise ValueError(
            "mode=shadow, take_over and episodes run in real time: robot.lock_step=false."
        )
    if settings.mode is DeploymentMode.DRY_RUN and (several or settings.take_over is not None):
        raise ValueError(
            "A dry run moves no arms: take_over=null episodes=1, or mode=run for a takeover or a "
            "session."
        )
    if settings.take_over == LEADERS and settings.robot.leaders is None:
        raise ValueError(
            f"The configuration of {settings.robot.name} has no leaders: robot.leaders. To take "
            "over in a browser: take_over=page."
        )
