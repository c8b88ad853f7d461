"""Runs episodes of a policy on emulated arms in real time, and monitors loop and protocol."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stringline.policies.chunks.chunk import Policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.timing_monitor import TimingMonitor
from stringline.real_robot.emulators.program.emulator_client import Emulator, square_size
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.environment_reset import reset_environment
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.protocol_in_the_loop.wire_limits import WireCheck, wire_lines
from stringline.real_robot.robots.backends import RobotBackend, robot_backend
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot, RobotSession
from stringline.real_robot.robots.robot_settings import RobotSettings

_HOMEWARD_S = 3.0
_RECOVERY_S = 5.0
_POLL_S = 0.2


@dataclass(frozen=True)
class RealTimeResult:
    """The result of an episode in real time."""

    seed: int
    success: bool
    stage_name: str
    episode: RealTimeEpisode


class RealTimeRunner:
    """Starts the device process and the cameras of emulated arms, turns torque on, and monitors.

    A context manager that ends them.

    Args:
        emulator: Started emulator in real time, which captures into the folder.
        folder: Folder of logs and captures.
        look: Called several times a second.

    Attributes:
        robot: The robot, once entered.
        watch: Monitors the cycles of the device process, once entered.
        check: Checks the captured goals, once entered.
        failed_homings: Number of environments reset with arms that did not reach their home pose.

    Raises:
        ValueError: The policy is for another embodiment, the robot is not emulated or in lock-step,
            or the policy cannot be executed in this way.
    """

    robot: ArmedRobot
    watch: TimingMonitor
    check: WireCheck

    def __init__(
        self,
        settings: DeploymentSettings,
        policy: Policy,
        emulator: Emulator,
        folder: Path,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        robot = settings.robot
        self._backend = check_embodiment(policy, robot)
        if not robot.emulated or robot.lock_step:
            raise ValueError(
                f"{robot.name} is not emulated or in lock-step; this needs emulated arms and "
                "robot.lock_step=false."
            )
        self._settings = settings
        self._policy = policy
        self._emulator = emulator
        self._folder = folder
        self._look = look
        self._execution = settings.execution
        self._steps = settings.execute_steps
        # A policy that cannot be executed in this way fails here.
        self._execution.session(policy, 0, execute_steps=self._steps)
        self._factory = RobotFactory(robot)
        self._stack = ExitStack()
        self._polled = 0.0
        self._looked = 0.0
        self._done = False
        self.failed_homings = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            log = LogPlan(self._folder / "log")
            session = stack.enter_context(RobotSession(self._factory, log=log))
            self.robot = session.start(
                self._policy.contract.cameras, emulator=self._emulator, on_device=self._monitor
            )
            self._real_time = RealTimeRobot(
                self.robot.device,
                self.robot.frames,
                self._policy.contract,
                self._factory.embodiment,
            )
            self._stack = stack.pop_all()
        return self

    def _monitor(self, device: DeviceProcess) -> None:
        """Creates the monitors of a device process, which must see its first episode."""
        period_s = 1.0 / self._settings.robot.device_hz
        self.watch = TimingMonitor.of(device, self._factory.embodiment, period_s)
        lines = wire_lines(self._backend, self._folder, self._factory.limits(), period_s)
        self.check = WireCheck(self.watch, lines)

    @property
    def pids(self) -> dict[str, int]:
        """Process IDs by the name of the process."""
        device = self.robot.device
        recorder = device.incidents
        found = {
            "device process": device.pid,
            "incident recorder": None if recorder is None else recorder.pid,
        }
        handles = [] if self.robot.cameras is None else self.robot.cameras.handles
        found |= {f"camera {handle.settings.name}": handle.pid for handle in handles}
        return {name: pid for name, pid in found.items() if pid is not None}

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.check.look()

    def episode(self, seed: int, seconds: float) -> RealTimeResult:
        """Moves the arms home, resets the environment, and runs the policy until success.

        The policy acts for at most `seconds`.
        """
        self._home()
        reset_environment(self._emulator, self.robot.device, seed, self._settings.options)
        self._done = False
        session = self._execution.session(
            self._policy, seed, execute_steps=self._steps, clock=time.monotonic
        )
        episode = self._real_time.run(
            session,
            seconds,
            execute_steps=self._execution.replan_after(self._steps),
            done=self._success,
            report=self._watch,
        )
        outcome = self._emulator.outcome()
        return RealTimeResult(seed, bool(outcome["success"]), str(outcome["stage_name"]), episode)

    def _home(self) -> None:
        """Moves the arms home; if something blocks them, the reset puts them there."""
        device = self.robot.device
        embodiment = self._factory.embodiment
        # A controller that has released its arm accepts commands again after a while.
        deadline = time.monotonic() + _RECOVERY_S
        while True:
            try:
                Approach(device, embodiment, watch=self._watch).to(
                    embodiment.home, _HOMEWARD_S, "their home pose"
                )
                return
            except RuntimeError:
                if time.monotonic() >= deadline:
                    break
                self._watch()
                time.sleep(_POLL_S)
        self.failed_homings += 1
        device.begin()

    def _watch(self, *_: object) -> None:
        if (now := time.monotonic()) >= self._looked + _POLL_S:
            self._looked = now
            self.check.look()
            self._look()

    def _success(self) -> bool:
        if (now := time.monotonic()) >= self._polled + _POLL_S:
            self._polled = now
            self._done = bool(self._emulator.outcome()["success"])
        return self._done


def check_embodiment(policy: Policy, robot: RobotSettings) -> RobotBackend:
    """Returns the backend of a robot, if the policy is for its embodiment.

    Raises:
        ValueError: The policy is for another embodiment.
    """
    backend = robot_backend(robot.transport, robot.arms, robot.driver, robot.backend)
    wanted = policy.contract.embodiment
    if backend.embodiment.name != wanted:
        raise ValueError(
            f"The policy is for {wanted}; {robot.name} is {backend.embodiment.name}: choose "
            "another robot=, or robot.arms="
        )
    return backend


def real_time_emulator(settings: DeploymentSettings, policy: Policy, folder: Path) -> Emulator:
    """Builds the emulator of a robot in real time, with the cameras of the policy.

    Raises:
        ValueError: The policy is for another embodiment, or its images differ in size or are not
            square.
    """
    backend = check_embodiment(policy, settings.robot)
    cameras = policy.contract.cameras
    return backend.emulator(
        lock_step=False,
        cameras=[camera.name for camera in cameras],
        image_size=square_size(cameras),
        **{**(settings.robot.emulator or {}), "capture": folder},
    )
