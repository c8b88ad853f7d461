"""`mode=teleop`: a person leads the arms, and the episode is recorded."""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.leader_teleoperation import TeleopEpisode, Teleoperation
from stringline.real_robot.deployment.live_view import check_view, viewing
from stringline.real_robot.device.device_process import DeviceProcess, brake
from stringline.real_robot.emulators.program.emulator_client import Emulator, LeaderEmulator
from stringline.real_robot.execution.lock_step import fault_of
from stringline.real_robot.operator.checklist import Checklist, CheckResult
from stringline.real_robot.operator.live_status import (
    LiveStatus,
    print_line,
    report_counts,
    report_fault,
    report_outcome,
    reset_by_operator,
)
from stringline.real_robot.operator.operator_keys import MESSAGES, STOPS, Key, Keys, TerminalKeys
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot, RobotSession

EXPERT = "expert"

ConnectedLeaders = tuple[Teleoperation, LeaderEmulator | None]


def connect_leaders(
    factory: RobotFactory, device: DeviceProcess, stack: ExitStack, hand: Path | None = None
) -> ConnectedLeaders:
    """Connects the leaders of a robot, which the stack ends.

    `hand` is the motion of emulated leaders. Returns the teleoperation, and the emulator of
    emulated leaders.
    """
    settings = factory.settings
    emulator = stack.enter_context(LeaderEmulator(hand=hand)) if settings.emulated else None
    leaders = factory.leaders(emulator)
    leaders.connect()
    stack.callback(leaders.close)
    teleoperation = Teleoperation(
        leaders,
        device,
        ALOHA,
        control_hz=settings.control_hz,
        agree=float(settings.teleoperation.agree),
        agree_opening=float(settings.teleoperation.agree_opening),
    )
    return teleoperation, emulator


class TeleopDeployment:
    """Lets a person, or a scripted hand on emulated leaders, lead a robot and records the episode.

    Raises:
        ValueError: Settings contradict each other.
    """

    def __init__(self, settings: DeploymentSettings) -> None:
        self._settings = settings
        self._factory = RobotFactory(settings.robot)
        if settings.robot.leaders is None:
            raise ValueError(
                f"The configuration of {settings.robot.name} has no leaders; allowed modes: run, "
                "dry_run, shadow."
            )
        self._hand = settings.robot.leaders.hand
        if settings.robot.lock_step:
            raise ValueError("Teleoperation runs in real time: robot.lock_step=false.")
        if settings.record is None:
            raise ValueError("Teleoperation records an episode: record=FOLDER, its store.")
        self._store = settings.record
        if settings.log is None:
            raise ValueError("Episodes are recorded from the incident log: log.folder=FOLDER.")
        if settings.view is not None:
            check_view(settings.view)

    def run(self) -> bool:
        """Checks, couples leaders and followers, and records one episode.

        Returns:
            Whether the episode was recorded without a fault and, on emulated arms, successful.
        """
        print_line(f"Leading {self._factory.name}")
        checklist = Checklist()
        leaders = CheckResult[ConnectedLeaders](checklist)
        session = RobotSession(self._factory, checklist, log=self._settings.log, arms="followers")
        session.check(with_leaders=True)
        with session, ExitStack() as stack:
            robot = session.start(
                None,
                before_torque=lambda device: leaders.run(
                    "ports and servos of the leaders",
                    lambda: connect_leaders(self._factory, device, stack, self._hand_motion(stack)),
                    lambda _: "they answer, and have no torque",
                ),
            )
            return self._lead(robot, *leaders.value, stack)

    def _hand_motion(self, stack: ExitStack) -> Path | None:
        """Returns the file with the motion of the scripted hand of emulated leaders."""
        if not self._factory.settings.emulated or self._hand is None:
            return None
        if self._hand != EXPERT:
            return Path(self._hand)
        # A simulation, which real leaders do not need.
        from stringline.real_robot.emulators.plants.expert_hand import write_expert_hand

        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stringline-"))
        file = Path(folder) / "way.npz"
        task = self._settings.task
        write_expert_hand(
            file, task.name, self._settings.seed, self._settings.options, task.time_limit_s
        )
        return file

    def _lead(
        self,
        robot: ArmedRobot,
        leaders: Teleoperation,
        hand: LeaderEmulator | None,
        stack: ExitStack,
    ) -> bool:
        settings = self._settings
        if robot.emulator is not None:
            robot.emulator.begin(settings.seed, settings.options)
            robot.device.new_world = True
        robot.device.begin()
        keys = stack.enter_context(TerminalKeys(held=robot.held))
        if robot.held is not None:
            print_line(f"{MESSAGES[Key.RUN]}.")
        print_line(
            "q ends the episode and keeps it."
            if keys.available
            else "Operator keys need a terminal; Ctrl-C ends without a recording."
        )
        if not self._couple(leaders, keys):
            print_line("Leaders and followers do not agree; no episode was recorded.")
            return False
        recorder = self._recorder(robot.device, stack)
        if hand is not None:
            hand.begin(settings.seed)
        print_line("You lead." if hand is None else "The scripted hand leads.")
        episode = self._record(robot, leaders, keys, recorder, stack)
        brake(robot.device)
        # A fault may come up while the followers brake.
        episode.fault = episode.fault or fault_of(robot.device)
        return self._finish(episode, recorder, robot.emulator)

    def _record(
        self,
        robot: ArmedRobot,
        leaders: Teleoperation,
        keys: Keys,
        recorder: DeploymentRecorder,
        stack: ExitStack,
    ) -> TeleopEpisode:
        settings = self._settings
        emulator = robot.emulator
        frames = robot.frames
        view = stack.enter_context(
            viewing(
                settings.view,
                robot.device,
                self._factory.contract(),
                self._factory.embodiment,
                frames,
                period_s=1.0 / settings.robot.device_hz,
                frame_hz=settings.task.frame_hz,
            )
        )
        with LiveStatus(settings.seconds, view) as status:
            return leaders.run(
                settings.seconds,
                stop=lambda: (
                    keys.pressed() is Key.END
                    or (emulator is not None and bool(emulator.outcome()["success"]))
                ),
                record=lambda state, _: recorder.look(state, frames),
                report=status.show,
            )

    def _couple(self, leaders: Teleoperation, keys: Keys) -> bool:
        """Waits until leaders and followers agree; returns whether they do."""
        teleoperation = self._settings.robot.teleoperation
        if teleoperation.approach_s:
            print_line("The followers move to the leaders; any operator key stops them.")
            seconds = float(teleoperation.approach_s)
            arrived = leaders.approach(
                seconds,
                lambda: keys.pressed() in STOPS,
                lambda fault: reset_by_operator(fault, keys),
            )
            if not arrived:
                return False
        return leaders.wait(
            float(teleoperation.patience_s),
            stop=lambda: keys.pressed() is Key.END,
            report=print_line,
        )

    def _finish(
        self, episode: TeleopEpisode, recorder: DeploymentRecorder, emulator: Emulator | None
    ) -> bool:
        """Reports the episode and stores it; for the result see `run`."""
        print_line(
            f"{episode.targets} targets in {episode.seconds:.1f} s, {episode.pauses} pauses of the "
            f"leaders, {episode.late} late cycles."
        )
        cycles = round(episode.seconds * self._settings.robot.device_hz)
        report_counts(episode.counts, cycles, episode.following)
        report_fault(episode.fault)
        success: bool | None = None
        if emulator is not None:
            outcome = emulator.outcome()
            success = bool(outcome["success"])
            report_outcome(success, str(outcome["stage_name"]), episode.seconds)
        about = {"fault": episode.fault, "pauses": episode.pauses, "late_cycles": episode.late}
        recorded = recorder.commit(success, about)
        if recorded.problem:
            print_line(f"No episode was recorded: {recorded.problem}.")
        else:
            print_line(
                f"Recorded {recorded.steps} steps as {recorded.name} in {self._store}; "
                f"{recorded.lost} records were lost."
            )
        return not episode.fault and not recorded.problem and success is not False

    def _recorder(self, device: DeviceProcess, stack: ExitStack) -> DeploymentRecorder:
        """Starts the recording of the next episode; its actions are the targets of the leaders."""
        attributes = EpisodeAttributes(
            self._factory.contract(),
            self._settings.task.name,
            self._settings.seed,
            source="teleoperation",
            extra={"robot": self._factory.name, "began_unix_s": time.time()},
        )
        recorder = DeploymentRecorder(
            device,
            self._store,
            attributes,
            self._factory.embodiment,
            frame_hz=self._settings.task.frame_hz,
            unfiltered=True,
        )
        return stack.enter_context(recorder)
