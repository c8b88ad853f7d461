"""The deployment of a policy: checks, one episode in real time or in lock-step, and a report."""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property

from stringline.datasets.store.episode import EpisodeAttributes
from stringline.encoders.training.checkpoint import code_version
from stringline.policies.checkpoints.load import open_policy
from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import MEASURED
from stringline.policies.execution.with_instruction import WithInstruction
from stringline.real_robot.deployment.deployment_settings import (
    DeploymentMode,
    DeploymentSettings,
)
from stringline.real_robot.deployment.live_view import check_view, viewing
from stringline.real_robot.deployment.policy_episode import PolicyEpisode
from stringline.real_robot.execution.environment_reset import reset_environment
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.live_status import print_line
from stringline.real_robot.recording.deployment_log import Recording, log_of_policy, recording
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot, RobotSession, approach_home
from stringline.sim.tasks.task_registry import make_task


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
        """Checks, runs the episode and reports its result; returns whether the task was done."""
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
        session.check(with_leaders=settings.take_over)
        try:
            with session:
                robot = session.start(wanted)
                with ExitStack() as stack:
                    return self._run(fitting.value, robot, stack)
        finally:
            for line in session.summary():
                print_line(line)

    def _checked(self, policy: Policy) -> Policy:
        """Returns the policy with its instruction, if it fits the robot."""
        settings = self._settings
        execution = RecordedExecution(settings.execution, settings.execute_steps)
        prompt = {} if settings.prompt is None else {"prompt": settings.prompt}
        self._record.warn({"task": settings.task.name, **prompt, **execution.options()})
        contract = policy.contract
        if problems := contract.incompatibilities(self._factory.contract(contract.cameras)):
            raise ValueError("\n".join(problems))
        # An execution or an instruction that the policy lacks fails here, before anything moves.
        policy = WithInstruction(policy, self._instruction())
        settings.execution.session(policy, settings.seed, execute_steps=settings.execute_steps)
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
        if not settings.robot.lock_step:
            self._prepare(robot)
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
        with self._recording(policy, robot) as kept:
            episode = PolicyEpisode(settings, self._factory, policy, robot, kept, view, stack)
            if settings.robot.lock_step and robot.emulator is not None:
                return episode.run_in_lock_step(robot.emulator)
            return episode.run_in_real_time()

    def _recording(
        self, policy: Policy, robot: ArmedRobot
    ) -> AbstractContextManager[Recording | None]:
        settings = self._settings
        # Commands of a dry run were not sent, so they cannot serve as training data.
        if settings.record is None or self._dry or robot.device.incidents is None:
            return nullcontext()
        attributes = EpisodeAttributes(
            policy.contract,
            settings.task.name,
            settings.seed,
            source="deployment",
            instruction=self._instruction(),
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

    def _prepare(self, robot: ArmedRobot) -> None:
        """Resets the environment, or moves the arms to their home pose."""
        settings = self._settings
        if robot.emulator is not None:
            reset_environment(robot.emulator, robot.device, settings.seed, settings.options)
        elif not self._dry:
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
    if settings.robot.lock_step and (shadow or settings.take_over):
        raise ValueError("mode=shadow and take_over=true run in real time: robot.lock_step=false.")
    if settings.take_over and settings.mode is DeploymentMode.DRY_RUN:
        raise ValueError("A dry run moves no arms, so a person cannot take over: take_over=false.")
