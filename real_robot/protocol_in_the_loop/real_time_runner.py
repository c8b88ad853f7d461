"""A policy on emulated arms by the clock, episode after episode, and what was seen of time and of the wire meanwhile."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import Execution
from stringline.real_robot.device.timing_monitor import LoopWatch
from stringline.real_robot.emulators.program.emulator_client import Emulator, square_size
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.environment_reset import begin_world
from stringline.real_robot.execution.real_time import LiveEpisode, RealTimeRobot
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.protocol_in_the_loop.wire_limits import WireCheck, wire_lines
from stringline.real_robot.robots.backends import ArmKind, arm_kind
from stringline.real_robot.robots.robot_factory import NoCameras, RobotFactory

_HOMEWARD_S = 3.0
_RECOVERY_S = 5.0
_ASK_EVERY_S = _LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class LiveResult:
    """An episode by the clock.

    Attributes:
        seed: Of the world and the policy.
        success: Whether the task was done.
        stage_name: The furthest stage.
        episode: How it went.
    """

    seed: int
    success: bool
    stage_name: str
    episode: LiveEpisode


class LiveArms:
    """Starts the device process of emulated arms and those of their cameras, turns torque on, and watches.

    A context manager that ends them.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved.
        policy: Who acts.
        emulator: Started, by the clock, capturing into the folder.
        folder: For logs and what is captured.
        look: Called several times a second.

    Attributes:
        device: The device process.
        watch: Sees its cycles.
        check: Sees the wire.
        strays: How often arms had to be left where they were before a new world was made, since
            they did not come home.

    Raises:
        ValueError: The policy is for other arms, the robot of the settings is not emulated, or in
            lock-step, or not watched; or plans cannot be executed like that.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        policy: Policy,
        emulator: Emulator,
        folder: Path,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        cell = RobotFactory(settings["robot"])
        kind = demand_fit(policy, settings["robot"])
        if not cell.emulated or cell.lock_step:
            raise ValueError(
                f"{cell.name} in lock-step is {cell.lock_step}; needed are emulated arms by the "
                f"clock."
            )
        self._settings = settings
        self._policy = policy
        self._emulator = emulator
        self._look = look
        self._execution = Execution.of(settings.get("execution"))
        self._steps = settings["execute_steps"]
        self._execution.session(
            policy, 0, execute_steps=self._steps
        )  # What cannot be is refused now.
        period_s = 1.0 / cell.device_hz
        self._cameras = cell.cameras(emulator, policy.contract.cameras)
        self.device = cell.device(emulator, log=LogPlan(folder / "log"), cameras=self._cameras)
        self._body = cell.body
        self.watch = LoopWatch.of(self.device, self._body, period_s)
        self.check = WireCheck(self.watch, wire_lines(kind, folder, cell.limits(), period_s))
        self._robot = RealTimeRobot(
            self.device, self._cameras or NoCameras(), policy.contract, self._body
        )
        self._stack = ExitStack()
        self._asked = 0.0
        self._looked = 0.0
        self._done = False
        self.strays = 0

    def __enter__(self) -> Self:
        with self._stack as stack:
            if self._cameras is not None:
                cameras = stack.enter_context(self._cameras)
                for handle in cameras.handles:
                    handle.wait(cameras.start_s)
            stack.enter_context(self.device)
            self.device.connect()
            self.device.arm()
            if self._cameras is not None:
                self._cameras.look_after()
            self._stack = stack.pop_all()
        return self

    @property
    def pids(self) -> dict[str, int]:
        """Numbers of the processes that were started, by what they do."""
        recorder = self.device.incidents
        found = {
            "device process": self.device.pid,
            "incident recorder": None if recorder is None else recorder.pid,
        }
        handles = [] if self._cameras is None else self._cameras.handles
        found |= {f"camera {handle.settings.name}": handle.pid for handle in handles}
        return {name: pid for name, pid in found.items() if pid is not None}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self.check.look()

    def episode(self, seed: int, seconds: float) -> LiveResult:
        """Brings the arms home, makes the world of that seed, and lets the policy act until success or the end of the time.

        Args:
            seed: Of world and policy.
            seconds: Longest time that the policy acts.
        """
        self._home()
        begin_world(self._emulator, self.device, seed, self._settings["options"])
        self._done = False
        session = self._execution.session(
            self._policy, seed, execute_steps=self._steps, clock=time.monotonic
        )
        episode = self._robot.run(
            session,
            seconds,
            execute_steps=self._execution.ask_after(self._steps),
            done=self._success,
            report=self._watch,
        )
        outcome = self._emulator.outcome()
        return LiveResult(seed, bool(outcome["success"]), str(outcome["stage_name"]), episode)

    def _home(self) -> None:
        """Moves the arms home; where something stays in the way of that, the new world takes them there."""
        deadline = (
            time.monotonic() + _RECOVERY_S
        )  # A controller that let its arm go takes it up again after a while.
        while True:
            try:
                Approach(self.device, self._body, watch=self._watch).to(
                    self._body.home, _HOMEWARD_S, "their home pose"
                )
                return
            except RuntimeError:
                if time.monotonic() >= deadline:
                    break
                self._watch()
                time.sleep(_ASK_EVERY_S)
        self.strays += 1
        self.device.begin()

    def _watch(self, *_: object) -> None:
        if (now := time.monotonic()) >= self._looked + _LOOK_EVERY_S:
            self._looked = now
            self.check.look()
            self._look()

    def _success(self) -> bool:
        if (now := time.monotonic()) >= self._asked + _ASK_EVERY_S:
            self._asked = now
            self._done = bool(self._emulator.outcome()["success"])
        return self._done


def demand_fit(policy: Policy, robot: Mapping[str, Any]) -> ArmKind:
    """Returns the kind of arms that a robot has.

    Args:
        policy: Who is to move them.
        robot: Settings of `configs/robot`.

    Raises:
        ValueError: They are none that the policy is for.
    """
    kind = arm_kind(robot)
    wanted = policy.contract.embodiment
    if kind.body.name != wanted:
        raise ValueError(
            f"The policy is for {wanted}; {robot['name']} is {kind.body.name}: choose another "
            f"robot=, or robot.arms="
        )
    return kind


def live_emulator(settings: Mapping[str, Any], policy: Policy, folder: Path) -> Emulator:
    """Returns the emulator of the settings' robot, by the clock, with the cameras of the policy, not started yet.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved.
        policy: Who looks.
        folder: Where it captures what drivers send.

    Raises:
        ValueError: The policy is for other arms, or its images are of several sizes, or not square.
    """
    kind = demand_fit(policy, settings["robot"])
    cameras = policy.contract.cameras
    chosen = {**settings["robot"]["emulator"], "capture": folder}
    names = [camera.name for camera in cameras]
    return kind.emulator(
        lock_step=False, cameras=names, image_size=square_size(cameras), settings=chosen
    )
