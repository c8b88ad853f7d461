"""A deployment of a policy: checks, one episode by the clock or in lock-step, and what became of it."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from stringline.datasets.contract.arguments import POSITIVE, WHOLE
from stringline.policies.checkpoints.load import open_policy
from stringline.policies.chunks.chunk import Policy, Session
from stringline.policies.execution.execution import MEASURED, Execution
from stringline.policies.execution.instructed import Instructed
from stringline.real_robot.cameras.camera_checks import CameraWords, check_cameras
from stringline.real_robot.cameras.cameras import Cameras
from stringline.real_robot.deployment.live_view import check_place, viewing
from stringline.real_robot.deployment.modes import DeploymentMode
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.deployment.teleop_deployment import couple_leaders
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.device.dry_run import CommandLog
from stringline.real_robot.device.timing_monitor import LoopWatch
from stringline.real_robot.device.twin import Divergence, ShadowedProcess
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.environment_reset import begin_world
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.execution.real_time import RealTimeRobot
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.live_status import (
    LiveStatus,
    say,
    say_counts,
    say_fault,
    say_outcome,
)
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.recording.deployment_log import (
    Recording,
    asked_for,
    log_plan,
    recording,
    what_was_kept,
)
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import NoCameras, RobotFactory

_TWIN_APPROACH_S = 1.0


class Deployment:
    """Runs a checkpoint on a robot.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved; the mode is none that is led by hand.

    Raises:
        ValueError: Settings do not go together, or a number is out of range.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._mode = DeploymentMode.named(str(settings["mode"]))
        if self._mode is DeploymentMode.TELEOP:
            raise ValueError("A deployment of a policy is not led by hand; see LedDeployment.")
        if self._mode is DeploymentMode.CALIBRATE:
            raise ValueError(
                "A deployment of a policy calibrates nothing; see CalibrationDeployment."
            )
        self._settings = settings
        self._robot = settings["robot"]
        self._cell = RobotFactory(settings["robot"])
        self._execution = Execution.of(settings.get("execution"))
        self._steps = settings["execute_steps"]
        self._dry = self._mode is DeploymentMode.DRY_RUN
        self._shadow = self._mode is DeploymentMode.SHADOW
        self._also: Callable[[DeviceState], None] = lambda _: None
        WHOLE.check(seed=settings["seed"])
        POSITIVE.check(seconds=settings["seconds"])
        if settings.get("view") is not None:
            check_place(str(settings["view"]))
        if self._cell.lock_step and self._execution.delay_s == MEASURED:
            raise ValueError(
                "In lock-step the world waits for the policy, so there is no delay to measure: "
                "give execution.delay_s in "
                "seconds, or run by the clock with robot.lock_step=false."
            )
        if self._cell.lock_step and (self._shadow or settings["take_over"]):
            raise ValueError("A twin and a hand go by the clock: robot.lock_step=false.")
        if settings["take_over"] and self._dry:
            raise ValueError(
                "In a dry run nothing moves, so nobody can take over: take_over=false."
            )

    def run(self) -> bool:
        """Checks, runs the episode and shows the result; returns whether the task was done.

        Raises:
            ValueError: A check failed.
        """
        checklist = Checklist()
        say(
            f"Deploying to {self._cell.name}"
            + (f", mode {self._mode}" if self._mode is not DeploymentMode.RUN else "")
        )
        policy = self._open(checklist)
        cameras: Cameras | None = None
        self._cell.check(checklist, moving=not self._dry, led=self._settings["take_over"])
        asked = None if policy is None else policy.contract.cameras
        device: DeviceProcess | None = None
        try:
            with ExitStack() as stack:
                emulator = self._cell.emulator(asked or ())
                if emulator is not None:
                    stack.enter_context(emulator)
                cameras = self._cell.cameras(emulator, asked)
                if cameras is not None:
                    check_cameras(stack.enter_context(cameras), checklist, self._cell.calibration)
                device = shadowed = self._cell.device(
                    emulator, read_only=self._dry, log=log_plan(self._settings), cameras=cameras
                )
                stack.enter_context(shadowed)
                with checklist.check("ports and servos") as note:
                    shadowed.connect()
                    note(f"{len(device.servos)} servos answer and are set as they should be")
                checklist.demand()
                assert policy is not None
                with checklist.check(
                    "where the arms stand"
                    if self._dry
                    else "goal where the arms stand, then torque"
                ) as note:
                    note(" ".join(shadowed.arm()))
                checklist.demand()
                if cameras is not None:
                    cameras.look_after()
                return self._run(
                    policy, emulator, shadowed, cameras or emulator or NoCameras(), stack
                )
        finally:
            seen = [] if cameras is None else cameras.summary()
            for line in seen + ([] if device is None else what_was_kept(device)):
                say(line)

    def _run(
        self,
        policy: Policy,
        emulator: Emulator | None,
        device: ShadowedProcess,
        frames: FrameSource,
        stack: ExitStack,
    ) -> bool:
        if not self._cell.lock_step:
            self._set_up(emulator, device)
        # What was not sent is nothing to learn from.
        settings = {**self._settings, "record": None} if self._dry else self._settings
        self._also = stack.enter_context(
            viewing(self._settings, device, policy.contract, self._cell.body, frames)
        )
        with recording(settings, policy.contract, device, frames, self._cell.body) as kept:
            if self._cell.lock_step:
                assert emulator is not None
                return self._run_in_lock_step(policy, emulator, device, kept)
            robot = RealTimeRobot(device, frames, policy.contract, self._cell.body)
            return self._run_by_the_clock(robot, policy, emulator, device, kept, stack)

    def _open(self, checklist: Checklist) -> Policy | None:
        policy: Policy | None = None
        with checklist.check("checkpoint") as note:
            policy = open_policy(self._settings["checkpoint"])[0]
            note(str(self._settings["checkpoint"]))
        if policy is not None:
            with checklist.check("checkpoint fits the robot"):
                if misfits := policy.contract.misfits(self._cell.contract(policy.contract.cameras)):
                    raise ValueError("\n".join(misfits))
                # What the policy cannot do, or does not know, is refused before anything moves.
                policy = Instructed(policy, asked_for(self._settings))
                self._execution.session(policy, self._settings["seed"], execute_steps=self._steps)
        return policy

    def _set_up(self, emulator: Emulator | None, device: DeviceProcess) -> None:
        """Makes the world, or brings the arms to where policies begin."""
        if emulator is not None:
            begin_world(emulator, device, self._settings["seed"], self._settings["options"])
        elif self._robot["approach_s"] and not self._dry:
            say("The arms move to their home pose.")
            Approach(device, self._cell.body).to(
                self._cell.body.home, float(self._robot["approach_s"]), "their home pose"
            )

    def _run_in_lock_step(
        self, policy: Policy, emulator: Emulator, device: DeviceProcess, kept: Recording | None
    ) -> bool:
        robot = LockStepRobot(
            emulator, device, policy.contract, self._cell.body, device_hz=self._cell.device_hz
        )
        commands = self._commands()
        with LiveStatus(float(self._robot["emulator"]["time_limit_s"]), self._also) as status:

            def report(state: DeviceState, seconds: float) -> None:
                status.show(state, seconds)
                if commands is not None:
                    commands.note([state])
                if kept is not None:
                    kept.follow([state])

            episode = robot.run(
                self._execution.session(policy, self._settings["seed"], execute_steps=self._steps),
                self._settings["seed"],
                execute_steps=self._execution.ask_after(self._steps),
                options=self._settings["options"],
                report=report,
            )
        say_counts(episode.counts, len(episode.commands))
        say_fault(episode.fault)
        say_outcome(episode.success, episode.stage_name, episode.time_s)
        self._sum_up(commands)
        if kept is not None:
            say(kept.commit(episode.success, {"fault": episode.fault}))
        return episode.success

    def _run_by_the_clock(
        self,
        robot: RealTimeRobot,
        policy: Policy,
        emulator: Emulator | None,
        device: ShadowedProcess,
        kept: Recording | None,
        stack: ExitStack,
    ) -> bool:
        commands = self._commands()
        divergence = self._accompany(device, stack)
        around = self._supervision(device, commands, divergence, kept, stack)
        seconds = float(self._settings["seconds"])
        start = time.monotonic()
        supervised = SupervisedRun(
            robot,
            partial(self._begin_session, policy),
            self._execution.ask_after(self._steps),
            around,
        )
        watch = (
            None
            if device.incidents is None
            else LoopWatch.of(device, self._cell.body, 1.0 / self._cell.device_hz)
        )
        with LiveStatus(seconds, self._also) as status:

            def report(state: DeviceState, so_far: float) -> None:
                status.show(state, so_far)
                if watch is not None:
                    watch.look()
                if kept is not None:
                    kept.follow([state])

            episode = supervised.run(
                seconds,
                done=lambda: emulator is not None and bool(emulator.outcome()["success"]),
                report=report,
            )
        say(
            f"{episode.plans} plans, {episode.refused} refused, {episode.waits} waits for images, "
            f"{episode.late} late cycles."
        )
        if episode.waited_for:
            say(
                "Waited for images of "
                + ", ".join(f"{name} ({n})" for name, n in episode.waited_for.most_common())
                + "."
            )
        say_counts(episode.counts, round(episode.seconds * self._cell.device_hz))
        for line in () if watch is None else watch.lines()[1:]:
            say(line)
        self._sum_up(commands)
        for line in () if divergence is None else divergence.summary(start):
            say(line)
        success = None
        if emulator is not None:
            outcome = emulator.outcome()
            success = bool(outcome["success"])
            say_outcome(success, str(outcome["stage_name"]), episode.seconds)
        if kept is not None:
            say(kept.commit(success, {"fault": episode.fault, "late_cycles": episode.late}))
        return not episode.fault if success is None else success

    def _begin_session(self, policy: Policy) -> Session:
        return self._execution.session(
            policy, self._settings["seed"], execute_steps=self._steps, clock=time.monotonic
        )

    def _commands(self) -> CommandLog | None:
        return (
            CommandLog(self._cell.body, Path(self._settings["output"]) / "commands.csv")
            if self._dry
            else None
        )

    def _sum_up(self, commands: CommandLog | None) -> None:
        if commands is not None:
            commands.close()
            for line in commands.summary():
                say(line)
            say(f"Cycle by cycle: {Path(self._settings['output']) / 'commands.csv'}")

    def _accompany(self, device: ShadowedProcess, stack: ExitStack) -> Divergence | None:
        """Starts a twin where the arms stand, if there is to be one."""
        if not self._shadow:
            return None
        world = stack.enter_context(self._cell.twin_emulator())
        twin = stack.enter_context(self._cell.twin(world))
        twin.connect()
        twin.arm()
        begin_world(world, twin, self._settings["seed"], self._settings["options"])
        Approach(twin, self._cell.body).to(
            device.latest().arms.position, _TWIN_APPROACH_S, "where the arms stand"
        )
        device.twin = twin
        return Divergence(self._cell.body)

    def _supervision(
        self,
        device: ShadowedProcess,
        commands: CommandLog | None,
        divergence: Divergence | None,
        kept: Recording | None,
        stack: ExitStack,
    ) -> Supervision:
        keys = stack.enter_context(TerminalKeys())
        watchers: list[Callable[[list[DeviceState]], None]] = [
            CameraWords(device.cameras, say).note
        ]
        if commands is not None:
            watchers.append(commands.note)
        if divergence is not None and device.twin is not None:
            twin = device.twin
            watchers.append(lambda states: divergence.note(states, twin.recent()))
        leaders = (
            couple_leaders(self._cell, self._robot, device, stack)[0]
            if self._settings["take_over"]
            else None
        )
        home_s = 0.0 if self._dry else float(self._robot["home_s"])
        around = Supervision(
            device,
            self._cell.body,
            keys,
            home_s=home_s,
            watchers=tuple(watchers),
            leaders=leaders,
            led=(lambda *_: None)
            if kept is None
            else lambda state, target: kept.add(state, target, by_hand=True),
        )
        say(
            around.words() + "."
            if keys.available
            else "No terminal, hence no operator keys; Ctrl-C makes the arms hold."
        )
        return around
