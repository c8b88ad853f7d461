"""Runs episodes of a policy on emulated arms in real time, and monitors loop and protocol.

Every goal that arrives at the arms is checked against the limits.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stringline.policies.chunks.chunk import Policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.process_monitor import TimingMonitor
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.program.arm_check import (
    SERVO_JOINTS,
    ArmCheck,
    CapturedGoals,
    FriLine,
    LcmLine,
    axis_check,
    lcm_check,
    servo_check,
)
from stringline.real_robot.emulators.program.emulator_client import Emulator, square_size
from stringline.real_robot.emulators.program.emulator_settings import USUAL_PREFIX
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.real_time import (
    RealTimeEpisode,
    RealTimeRobot,
    reset_environment,
)
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.robots.backends import (
    FriBackend,
    LcmBackend,
    RobotBackend,
    ServoBackend,
    robot_backend,
)
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot, RobotSession
from stringline.real_robot.robots.robot_settings import RobotSettings
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]

# Two goals decided in time are at most one and a half periods apart, see `RestAfterGap`; each may
# be sent up to a period after its decision, and may arrive when the next one is decided.
_IN_TIME_PERIODS = 1.5
_LATE_PERIODS = 2.5
_GAP_PERIODS = 4.0


class WireLine(Protocol):
    """The captured goals of one arm."""

    @property
    def check(self) -> ArmCheck:
        """Result of the check."""
        ...

    def begins_at(self, start: int) -> None:
        """Sets the number of the command that begins an episode at the arm's measured pose."""
        ...

    def take(self, sent: int) -> None:
        """Checks new goals; `sent` is the number of commands known to have been sent."""
        ...


class WireCheck:
    """Checks captured goals beside the records of the device process.

    Args:
        watch: Monitor of the device process, from before its first episode.
        lines: Captured goals by arm, in the order of the device process.
    """

    def __init__(self, watch: TimingMonitor, lines: Mapping[str, WireLine]) -> None:
        self._watch = watch
        self._lines = list(lines.values())
        self.arms = {arm: line.check for arm, line in lines.items()}

    @property
    def violations(self) -> int:
        """Number of goals outside a limit."""
        return sum(check.violations for check in self.arms.values())

    @property
    def goals(self) -> int:
        """Number of checked goals."""
        return sum(check.goals for check in self.arms.values())

    def look(self) -> None:
        """Checks new goals."""
        self._watch.update()
        while self._watch.starts:
            starts = self._watch.starts.pop(next(iter(self._watch.starts)))
            for line, start in zip(self._lines, starts, strict=True):
                line.begins_at(start)
        for line, sent in zip(self._lines, self._watch.commands, strict=False):
            line.take(sent)


def wire_lines(
    backend: RobotBackend, folder: Path, limits: SafetyLimits, period_s: float
) -> dict[str, WireLine]:
    """Returns the captured goals of each arm.

    Raises:
        ValueError: The backend is unknown.
    """
    embodiment = backend.embodiment
    files = {arm: folder / f"{arm}.bin" for arm in embodiment.arms}
    if isinstance(backend, FriBackend):
        version = version_of(backend.version)
        return {
            arm: FriLine(file, version, axis_check(embodiment, arm, limits, period_s))
            for arm, file in files.items()
        }
    if isinstance(backend, ServoBackend):
        return {
            arm: ServoLine(file, servo_check(arm, limits, period_s), period_s)
            for arm, file in files.items()
        }
    if isinstance(backend, LcmBackend):
        file = folder / f"{USUAL_PREFIX}.bin"
        return {
            arm: LcmLine(file, place, lcm_check(embodiment, arm, limits, period_s))
            for place, arm in enumerate(embodiment.arms)
        }
    raise ValueError("Goals can be checked for arms on serial lines, over FRI and over LCM only.")


class ServoLine:
    """The captured goals of an arm on a serial line.

    An episode begins at the measured pose of the arms, so its first goal need not continue the last
    one of the episode before. The device process records which goal that is; all others count.
    Servos hold their last goal, so after a gap in the goals the next step is one from rest. When a
    goal was sent is known only between two times, see `CapturedGoals`. A step from rest is allowed
    where the gap may have been one, and demanded where it was one for certain. A pause of the
    computer between the decision on a goal and its arrival is also seen as a gap, which the device
    process notices only at its next goal. So after a long one the step from rest may also be the
    next.

    Args:
        file: File of captured bytes, see the emulator's `--capture`.
        period_s: Time between two goals, seconds.
    """

    def __init__(self, file: Path, check: ArmCheck, period_s: float) -> None:
        self._captured = CapturedGoals(file)
        self.check = check
        self._period_s = period_s
        self._taken = 0
        self._starts: deque[int] = deque()
        self._waiting = np.zeros((0, SERVO_JOINTS))
        self._times = np.zeros((0, 2))
        self._last_s = np.full(2, np.nan)
        self._gap = False

    def begins_at(self, start: int) -> None:
        """Sets the number of the command that begins an episode."""
        self._starts.append(start + 1)  # The goal with which torque is turned on is not a command.

    def take(self, sent: int) -> None:
        """Checks new goals up to those that may begin an episode not known yet."""
        goals, times = self._captured.fresh()
        self._waiting = np.concatenate([self._waiting, goals])
        self._times = np.concatenate([self._times, times])
        while (ready := min(sent + 1 - self._taken, len(self._waiting))) > 0:
            begins = False
            while self._starts and self._starts[0] <= self._taken:
                begins = self._starts.popleft() == self._taken or begins
            end = min(ready, self._starts[0] - self._taken) if self._starts else ready
            self._check(self._waiting[:end], self._times[:end], begins=begins)
            self._waiting = self._waiting[end:]
            self._times = self._times[end:]
            self._taken += end

    def _check(self, goals: Vector, times: Vector, *, begins: bool) -> None:
        """Checks goals (T, 7) that were sent between these times (T, 2), in parts between gaps."""
        before = np.concatenate([self._last_s[None], times[:-1]])
        self._last_s = times[-1]
        earliest, latest = times.T / self._period_s
        earliest_before, latest_before = before.T / self._period_s
        late = latest - earliest_before > _IN_TIME_PERIODS
        stood = earliest - latest_before > _LATE_PERIODS
        gap = (latest - latest_before > _GAP_PERIODS) & ~stood
        marked = late | np.concatenate([[self._gap], gap[:-1]])
        parts = [0, *(np.flatnonzero(marked[1:]) + 1).tolist(), len(goals)]
        for first, end in pairwise(parts):
            if stood[first] or (self._gap and not self.check.fits_rest):
                self.check.halt()
            elif late[first]:
                self.check.may_halt()
            self._gap = bool(gap[end - 1])
            # The measured pose at which an episode begins is not among the goals.
            self.check.take(goals[first:end], begins=begins and first == 0, departed=True)


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
        instruction: Added to the observations; if None, none is added.

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
        instruction: str | None = None,
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
        self._instruction = instruction
        # A policy that cannot be executed in this way fails here.
        settings.executor(policy, instruction)
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
        episode = self._real_time.run(
            self._settings.executor(
                self._policy, self._instruction, seed=seed, clock=time.monotonic
            ),
            seconds,
            execute_steps=self._settings.execution.replan_after(self._settings.execute_steps),
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
