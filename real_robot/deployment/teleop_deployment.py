"""`mode=teleop`: a person leads the arms, and what is done becomes an episode."""

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.real_robot.cameras.camera_checks import check_cameras
from stringline.real_robot.deployment.leader_teleoperation import LedEpisode, Teleoperation
from stringline.real_robot.deployment.live_view import check_place, viewing
from stringline.real_robot.device.braking import brake
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.emulators.dynamixel.emulated_leaders import LeaderEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.lock_step import fault_of
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.live_status import (
    LiveStatus,
    say,
    say_counts,
    say_fault,
    say_outcome,
)
from stringline.real_robot.operator.operator_keys import Key, Keys, TerminalKeys
from stringline.real_robot.recording.deployment_recorder import DeploymentRecorder
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import NoCameras, RobotFactory

EXPERT = "expert"


def couple_leaders(
    cell: RobotFactory,
    robot: Mapping[str, Any],
    device: DeviceProcess,
    stack: ExitStack,
    hand: Path | None = None,
) -> tuple[Teleoperation, LeaderEmulator | None]:
    """Connects the leaders of a robot.

    Args:
        cell: The robot.
        robot: Its settings.
        device: Of the followers, connected and armed.
        stack: Ends what is started.
        hand: What moves emulated leaders; None leaves them at rest.

    Returns:
        The coupling, and the emulator of the leaders if they are emulated.

    Raises:
        RobotNotReadyError: Something is wrong with the leaders.
    """
    emulator = stack.enter_context(LeaderEmulator(hand)) if cell.emulated else None
    leaders = cell.leaders(emulator)
    leaders.connect()
    stack.callback(leaders.close)
    agree = float(robot["teleoperation"]["agree"])
    return Teleoperation(leaders, device, ALOHA, control_hz=cell.control_hz, agree=agree), emulator


class LedDeployment:
    """Lets a person, or for emulated leaders a scripted hand, lead a robot and records it.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._robot = settings["robot"]
        self._cell = RobotFactory(settings["robot"])
        if self._robot.get("leaders") is None:
            raise ValueError(
                f"The configuration of {self._cell.name} describes no leaders; allowed: run, "
                f"dry_run, shadow."
            )
        self._teleoperation = self._robot["teleoperation"]
        if self._cell.lock_step:
            raise ValueError("A hand does not wait: robot.lock_step=false.")
        if self._settings["record"] is None:
            raise ValueError(
                "Teleoperation is there to be recorded: record=FOLDER, the episode store."
            )
        if self._settings["log"]["folder"] is None:
            raise ValueError(
                "Episodes are recorded out of what the device process notes: log.folder=FOLDER."
            )
        if settings.get("view") is not None:
            check_place(str(settings["view"]))

    def run(self) -> bool:
        """Checks, couples leaders and followers, and records one episode; returns whether it is worth keeping.

        Raises:
            ValueError: A check failed.
        """
        checklist = Checklist()
        with ExitStack() as stack:
            say(f"Leading {self._cell.name}")
            self._cell.check(checklist, moving=True, led=True)
            emulator = self._cell.emulator()
            if emulator is not None:
                stack.enter_context(emulator)
            cameras = self._cell.cameras(emulator, None)
            if cameras is not None:
                check_cameras(stack.enter_context(cameras), checklist, self._cell.calibration)
            device = stack.enter_context(
                self._cell.device(emulator, log=self._log(), cameras=cameras)
            )
            with checklist.check("ports and servos of the followers") as note:
                device.connect()
                note(f"{len(device.servos)} servos answer and are set as they should be")
            coupled: Teleoperation | None = None
            hand: LeaderEmulator | None = None
            with checklist.check("ports and servos of the leaders") as note:
                coupled, hand = couple_leaders(
                    self._cell, self._robot, device, stack, self._way(stack)
                )
                note("they answer, and have no torque")
            checklist.demand()
            with checklist.check("goal where the followers stand, then torque"):
                device.arm()
            checklist.demand()
            assert coupled is not None
            if cameras is not None:
                cameras.look_after()
            return self._lead(
                coupled, device, emulator, hand, cameras or emulator or NoCameras(), stack
            )

    def _log(self) -> LogPlan:
        """Returns what of the wire and the loop is kept where."""
        plan = dict(self._settings["log"])
        return LogPlan(Path(plan.pop("folder")), {"configuration": self._settings}, **plan)

    def _way(self, stack: ExitStack) -> Path | None:
        """Returns the file with the way of the scripted hand, if leaders are emulated."""
        asked = self._robot["leaders"].get("hand")
        if not self._cell.emulated or asked is None:
            return None
        if asked != EXPERT:
            return Path(asked)
        # A simulation, which nobody needs who has leaders.
        from stringline.real_robot.emulators.plants.expert_hand import write_expert_hand

        file = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stringline-"))) / "way.npz"
        )
        task = self._settings["task"]
        chosen = self._settings
        write_expert_hand(
            file, task["name"], chosen["seed"], chosen["options"], float(task["time_limit_s"])
        )
        return file

    def _lead(
        self,
        coupled: Teleoperation,
        device: DeviceProcess,
        emulator: Emulator | None,
        hand: LeaderEmulator | None,
        frames: FrameSource,
        stack: ExitStack,
    ) -> bool:
        if emulator is not None:
            emulator.begin(self._settings["seed"], self._settings["options"])
        device.begin()
        keys = stack.enter_context(TerminalKeys())
        say(
            "q ends the episode and keeps it."
            if keys.available
            else "No terminal, hence no operator keys; Ctrl-C ends without."
        )
        if not self._meet(coupled, keys):
            say("Leaders and followers were not brought together; nothing was recorded.")
            return False
        recorder = self._recorder(device, stack)
        if hand is not None:
            hand.begin(self._settings["seed"])
        say("You lead." if hand is None else "The scripted hand leads.")
        seconds = float(self._settings["seconds"])
        also = stack.enter_context(
            viewing(self._settings, device, self._cell.contract(), self._cell.body, frames)
        )
        with LiveStatus(seconds, also) as status:
            led = coupled.run(
                seconds,
                stop=lambda: (
                    keys.pressed() is Key.END
                    or (emulator is not None and bool(emulator.outcome()["success"]))
                ),
                record=lambda state, _: recorder.look(state, frames),
                report=status.show,
            )
        brake(device)
        led.fault = led.fault or fault_of(device)  # One may come up while the followers brake.
        return self._sum_up(led, recorder, emulator)

    def _meet(self, coupled: Teleoperation, keys: Keys) -> bool:
        """Brings leaders and followers together, or waits until a person has; returns whether they are."""
        if self._teleoperation["approach_s"]:
            say("The followers move to where the leaders are.")
            coupled.approach(float(self._teleoperation["approach_s"]))
        return coupled.wait(
            float(self._teleoperation["patience_s"]),
            stop=lambda: keys.pressed() is Key.END,
            say=say,
        )

    def _sum_up(
        self, led: LedEpisode, recorder: DeploymentRecorder, emulator: Emulator | None
    ) -> bool:
        """Says how it went and stores it; returns whether it is worth keeping, as far as anybody knows."""
        say(
            f"{led.targets} targets in {led.seconds:.1f} s, {led.pauses} pauses of the leaders, "
            f"{led.late} late cycles."
        )
        say_counts(led.counts, round(led.seconds * self._cell.device_hz))
        say_fault(led.fault)
        success: bool | None = None
        if emulator is not None:
            outcome = emulator.outcome()
            success = bool(outcome["success"])
            say_outcome(success, str(outcome["stage_name"]), led.seconds)
        recorded = recorder.commit(
            success, {"fault": led.fault, "pauses": led.pauses, "late_cycles": led.late}
        )
        if recorded.problem:
            say(f"Nothing was recorded: {recorded.problem}.")
        else:
            say(
                f"Recorded {recorded.steps} steps as {recorded.name} in "
                f"{self._settings['record']}; "
                f"{recorded.lost} records were lost."
            )
        return not led.fault and not recorded.problem and success is not False

    def _recorder(self, device: DeviceProcess, stack: ExitStack) -> DeploymentRecorder:
        """Starts the recording of the next episode, whose actions are what the hand asks for."""
        about = {"robot": self._cell.name, "began_unix_s": time.time()}
        attributes = EpisodeAttributes(
            self._cell.contract(),
            self._settings["task"]["name"],
            self._settings["seed"],
            source="teleoperation",
            extra=about,
        )
        store = Path(self._settings["record"])
        frame_hz = float(self._settings["task"]["frame_hz"])
        recorder = DeploymentRecorder(
            device, store, attributes, self._cell.body, frame_hz=frame_hz, asked=True
        )
        return stack.enter_context(recorder)
