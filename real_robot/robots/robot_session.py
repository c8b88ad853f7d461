"""The bring-up of a robot: every mode starts emulator, cameras, ports and torque in one order."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from ctypes import c_double
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from stringline.datasets.contract.contract import Camera
from stringline.real_robot.cameras.cameras import Cameras, check_cameras
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.twin import TwinnedDeviceProcess
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.driver_interface.interlocks import ControllerInput
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.ipc.heartbeat import NO_INPUTS, MotionInputs, input_memory
from stringline.real_robot.operator.checklist import Checklist, StrictChecklist
from stringline.real_robot.operator.input_line import InputLine, LineSettings
from stringline.real_robot.operator.live_status import print_line, reset_by_operator
from stringline.real_robot.operator.operator_keys import MESSAGES, STOPS, HeldKey, Key, TerminalKeys
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import NoCameras, RobotFactory
from stringline.real_robot.robots.robot_settings import KEY


@dataclass(frozen=True)
class ArmedRobot:
    """A robot after its bring-up.

    Attributes:
        device: Device process of the arms, with torque on unless it is read-only.
        cameras: Camera processes; None without cameras and in lock-step.
        held: Receives the key of hold-to-run; None if it is not used.
    """

    device: TwinnedDeviceProcess
    emulator: Emulator | None
    cameras: Cameras | None
    held: HeldKey | None = None

    @property
    def frames(self) -> FrameSource:
        """Source of the cameras' images."""
        return self.cameras or self.emulator or NoCameras()


class RobotSession:
    """Starts a robot, and ends what it started; a context manager.

    The order of the steps is a matter of safety, so it is the same in each mode:

    1. `check`: the limits file, the calibration file and the serial adapters, without a port.
       `stringline-deploy` opens the checkpoint before; a calibration then checks its libraries,
       cameras, file and poses, and ends here if a check has failed.
    2. `start` starts the emulator of emulated arms, unless the caller has.
    3. The camera processes start, and each camera is checked.
    4. The device process opens the ports and checks all servos or controllers.
    5. `before_torque`: teleoperation opens the ports of the leaders.
    6. All checks so far must have passed.
    7. The goal is set to where the arms stand, then torque is turned on. A read-only device
       process only measures where the arms stand.
    8. That check must have passed. With real arms the operator may try it again, by a key.
    9. From now on camera processes that stop are restarted.
    10. Real arms wait for the operator's key; nothing has moved before.

    With a `StrictChecklist` the first error ends the bring-up, and nothing is reported.

    Args:
        checklist: Reports the checks; if None, a `StrictChecklist`.
        log: Settings of the incident logs; if None, no log.
        read_only: Whether no command is sent to the arms.
        still_grippers: Whether no command is sent to grippers that are not servos of an arm.
        arms: Name of the arms in reports: `arms`, or `followers` beside leaders.
    """

    def __init__(
        self,
        factory: RobotFactory,
        checklist: Checklist | None = None,
        *,
        log: LogPlan | None = None,
        read_only: bool = False,
        still_grippers: bool = False,
        arms: str = "arms",
    ) -> None:
        self.factory = factory
        self.checklist = checklist or StrictChecklist()
        self._log = log
        self._read_only = read_only
        self._still_grippers = still_grippers
        self._names = arms
        self._stack = ExitStack()
        self._cameras: Cameras | None = None
        self._device: TwinnedDeviceProcess | None = None
        self._held: HeldKey | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def check(self, *, with_leaders: bool = False) -> None:
        """Runs the checks that open no port; see step 1."""
        self.factory.check(self.checklist, moving=not self._read_only, with_leaders=with_leaders)
        settings = self.factory.settings
        if not self._read_only and (settings.starts_by_key or settings.hold_to_run == KEY):
            with self.checklist.check("terminal for the keys"):
                check_terminal()

    def start(
        self,
        wanted: Sequence[Camera] | None,
        *,
        emulator: Emulator | None = None,
        recalibrated: Sequence[str] = (),
        on_device: Callable[[TwinnedDeviceProcess], object] = lambda _: None,
        before_torque: Callable[[TwinnedDeviceProcess], object] = lambda _: None,
    ) -> ArmedRobot:
        """Starts the robot; see steps 2 to 10.

        Args:
            wanted: Cameras of a policy; if None, all.
            emulator: Emulator that the caller has started.
            recalibrated: Cameras whose old calibration is not checked.
            on_device: Receives the device process before it starts.
            before_torque: Receives the device process after it has opened the ports.
        """
        factory = self.factory
        if emulator is None and (emulator := factory.emulator(wanted or ())) is not None:
            self._stack.enter_context(emulator)
        cameras = self._cameras = factory.cameras(emulator, wanted)
        if cameras is not None:
            known = factory.calibration
            trusted = None if known is None else known.without(recalibrated)
            check_cameras(self._stack.enter_context(cameras), self.checklist, trusted)
        device = self._device = factory.device(
            emulator,
            read_only=self._read_only,
            log=self._log,
            cameras=cameras,
            still_grippers=self._still_grippers,
            inputs=self._inputs(),
        )
        on_device(device)
        self._stack.enter_context(device)
        arm_device(
            device,
            self.checklist,
            read_only=self._read_only,
            arms=self._names,
            before_torque=lambda: before_torque(device),
            again=ask_again if self._asks else never,
        )
        if cameras is not None:
            cameras.supervise()
        if self._asks:
            await_start()
        return ArmedRobot(device, emulator, cameras, self._held)

    @property
    def _asks(self) -> bool:
        """Whether an operator at a terminal decides about the start."""
        return self.factory.settings.starts_by_key and not self._read_only

    def _inputs(self) -> MotionInputs:
        """Starts the inputs that permit motion, and checks their lines; arms at rest need none."""
        settings = self.factory.settings
        if self._read_only:
            return NO_INPUTS
        pedal = settings.hold_to_run
        permission: c_double | None = None
        if isinstance(pedal, LineSettings):
            permission = self._line(pedal, "line of hold-to-run", permits=False)
        elif isinstance(pedal, ControllerInput):
            permission = input_memory()
        elif pedal is not None:
            permission = input_memory()
            self._held = HeldKey(permission)
        stop = settings.stop_line
        return MotionInputs(
            permission,
            None if stop is None else self._line(stop, "line of the external stop", permits=True),
        )

    def _line(self, settings: LineSettings, what: str, *, permits: bool) -> c_double:
        """Watches a line, and checks that it can be read, or also that it permits motion."""
        line = self._stack.enter_context(InputLine(settings))
        with self.checklist.check(what) as note:
            line.check_readable()
            if permits:
                line.check_permits()
            note(f"{settings.signal} of {settings.port}")
        return line.permission

    def summary(self) -> list[str]:
        """Returns lines about irregularities of cameras and log, after the session has ended."""
        lines = [] if self._cameras is None else self._cameras.summary()
        return lines + ([] if self._device is None else _incident_summary(self._device))


def never(problems: list[str]) -> bool:
    """Returns False: nothing is tried again."""
    return False


def ask_again(problems: list[str]) -> bool:
    """Reports problems of the bring-up, and returns whether the operator wants to try it again."""
    for problem in problems:
        print_line(f"Not ready: {problem}")
    print_line("Nothing has moved. r: try again; q: end.")
    with TerminalKeys() as keys:
        keys.forget()
        return keys.wait(Key.RESET, Key.END) is Key.RESET


def _armed(device: DeviceProcess, again: Callable[[list[str]], bool]) -> list[str]:
    """Turns on torque, for as often as that is wanted; returns the remarks."""
    while True:
        try:
            return device.arm()
        except RobotNotReadyError as error:
            if not again(error.problems):
                raise


def arm_device(
    device: DeviceProcess,
    checklist: Checklist | None = None,
    *,
    read_only: bool = False,
    arms: str = "arms",
    before_torque: Callable[[], object] = lambda: None,
    again: Callable[[list[str]], bool] = never,
) -> None:
    """Starts a device process and turns on torque: steps 4 to 8 of `RobotSession`.

    `again` reports why torque was not turned on, and returns whether to try it again.
    """
    checklist = checklist or StrictChecklist()
    followers = "" if arms == "arms" else f" of the {arms}"
    with checklist.check(f"ports and servos{followers}") as note:
        device.connect()
        note(f"{len(device.servos)} servos answer and are configured correctly")
    before_torque()
    checklist.check_passed()
    what = f"where the {arms} stand"
    with checklist.check(what if read_only else f"goal {what}, then torque") as note:
        note(" ".join(_armed(device, again)))
    checklist.check_passed()


def check_terminal() -> None:
    """Checks that the operator can press keys.

    Raises:
        ValueError: There is no terminal.
    """
    if not TerminalKeys().available:
        raise ValueError("real arms start by a key, and hold-to-run=key needs one: use a terminal.")


def await_start() -> None:
    """Waits for the operator's key; keys from before do not count.

    Raises:
        ValueError: The operator ends the program, or there is no terminal.
    """
    with TerminalKeys() as keys:
        keys.forget()
        print_line(f"The arms hold. {MESSAGES[Key.START]}; q: end.")
        if keys.wait(Key.START, Key.END) is not Key.START:
            raise ValueError("Not started: the operator has ended the program.")


def approach_home(robot: ArmedRobot, factory: RobotFactory) -> None:
    """Moves real arms to their home pose, if the settings give a time for that."""
    if seconds := factory.settings.approach_s:
        held = "" if robot.held is None else f" {MESSAGES[Key.RUN]}."
        print_line(f"The arms move to their home pose; any operator key stops them.{held}")
        embodiment = factory.embodiment
        with TerminalKeys(held=robot.held) as keys:
            approach = Approach(
                robot.device, embodiment, reset=lambda fault: reset_by_operator(fault, keys)
            )
            if not approach.to(
                embodiment.home, seconds, "their home pose", lambda: keys.pressed() in STOPS
            ):
                raise ValueError("The operator has stopped the arms on the way home.")


def _incident_summary(device: DeviceProcess) -> list[str]:
    """Returns lines about the incident logs of a closed device process."""
    incidents = device.incidents
    if incidents is None or not (incidents.files or incidents.lost or incidents.failures):
        return []
    lines = [
        f"Incident logs: {incidents.files}, in {incidents.folder}. Read them with "
        "stringline-incident file=..."
    ]
    if incidents.lost or incidents.failures:
        lines.append(
            f"The incident logs lack {incidents.lost} records; {incidents.failures} writes to "
            "the disk failed."
        )
    return lines
