"""Settings of a robot, as `configs/robot` describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, unknown_name
from stringline.real_robot.driver_interface.interlocks import ControllerInput
from stringline.real_robot.operator.input_line import LineSettings
from stringline.real_robot.safety.limits import DEFAULT_LIMITS, SHARE, SPEED

Arguments = Mapping[str, Any]
"""Keyword arguments of a driver or emulator, which checks them itself."""

KEY, IMMEDIATELY = STARTS = ("key", "immediately")
FRI = "fri"
# Of `configs/robot`, by transport.
_COMMON: Arguments = {"margin_rad": 0.02, "soft_start_s": 2.0}
_ALOHA_LIMITS: Arguments = {
    **_COMMON,
    SPEED: 0.25,
    SHARE: 0.5,
    "arm_clearance": 0.005,
    "effort": [9.0, 18.0, 18.0, 9.0, 9.0, 4.0],
}
_KUKA_LIMITS: Arguments = {
    **_COMMON,
    SPEED: 0.24,
    SHARE: 0.25,
    "acceleration": 5.0,
    "tracking_rad": 0.2,
    "arm_clearance": 0.02,
    "effort": [60.0, 60.0, 60.0, 30.0, 12.0, 12.0, 6.0],
}


@dataclass(frozen=True, kw_only=True)
class LeaderSettings:
    """Settings of leader arms.

    Attributes:
        ports: Serial port by arm; emulated leaders bring their own.
        driver: Keyword arguments of `AlohaLeaders`.
        hand: Motion of emulated leaders: expert (that of the task), or a file of save_hand; if
            None, no motion.
    """

    ports: Mapping[str, str] = field(default_factory=dict)
    driver: Arguments = field(default_factory=dict)
    hand: str | None = None


@dataclass(frozen=True, kw_only=True)
class TeleoperationSettings:
    """How leaders and followers are coupled.

    Attributes:
        agree: Largest difference (rad) of a joint between leader and follower when they are
            coupled.
        agree_opening: Largest difference (opening) of a gripper; one that holds an object agrees
            from its goal on.
        approach_s: Seconds of a motion of the followers to the leaders; if None or 0, a person
            brings the leaders.
        patience_s: Longest wait until they agree, s.
    """

    agree: float = 0.3
    agree_opening: float = 0.3
    approach_s: float | None = None
    patience_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class RobotSettings:
    """A robot with its cameras, limits, leaders and twin.

    Attributes:
        name: Name of the robot in messages and recordings.
        transport: KUKA's: fri (FRI over UDP) or lcm (drake-iiwa-driver's LCM); if None, ALOHA's
            serial lines.
        backend: `module:Class` of arms of another package; see `ArmBackend`.
        arms: Number of KUKA arms: one, or two.
        control_hz: Actions per second.
        device_hz: Cycles of the device process per second.
        lock_step: True: the emulated world waits for the policy; False: everything runs in real
            time.
        approach_s: Seconds of a motion to the home pose before an episode; if None or 0, no motion.
        home_s: Seconds of the motion to the home pose after the key h.
        model: Appearance of emulated arms: primitives; menagerie: meshes of MuJoCo Menagerie
            (docs/simulation.md).
        emulator: Keyword arguments of the emulator; if None, the arms are real.
        twin: The emulated twin of mode=shadow: keyword arguments of its emulator.
        cameras: For real arms settings by mount, overhead: {driver: realsense, serial: "...",
            depth: true} (docs/cameras.md); for emulated ones names.
        cameras_file: YAML file with settings of cameras, which override `cameras`.
        calibration_file: YAML file of mode=calibrate; if None, nominal camera poses of the
            embodiment.
        limits: Arguments of `SafetyLimits.of`.
        limits_file: YAML file that overrides `limits` (lower speeds stay); real arms need one with
            table_height.
        start: key: the operator starts the motion with s after all checks; immediately: emulated
            arms only. If None, `key` for real arms.
        hold_to_run: key: arms move only while g is held; {port, signal}: the line of a pedal;
            {input}: an input of a KUKA controller over FRI; if None, not needed (docs/robots.md).
        stop_line: External stop: {port: /dev/ttyUSB0, signal: cts} (docs/robots.md); if None, none.
        ports: Port or address by arm.
        driver: Keyword arguments of the driver.
        leaders: Leader arms of mode=teleop; if None, there are none.
        teleoperation: How leaders and followers are coupled.
    """

    name: str
    control_hz: float
    device_hz: float
    lock_step: bool
    transport: str | None = None
    backend: str | None = None
    arms: str = "one"
    approach_s: float | None = None
    home_s: float = 4.0
    model: str = "primitives"
    ports: Mapping[str, str] = field(default_factory=dict)
    driver: Arguments = field(default_factory=dict)
    emulator: Arguments | None = None
    twin: Arguments | None = None
    cameras: Sequence[str] | Mapping[str, Any] = ()
    cameras_file: Path | None = None
    calibration_file: Path | None = None
    limits: Arguments = field(default_factory=dict)
    limits_file: Path | None = None
    start: str | None = None
    hold_to_run: str | LineSettings | ControllerInput | None = None
    stop_line: LineSettings | None = None
    leaders: LeaderSettings | None = None
    teleoperation: TeleoperationSettings = TeleoperationSettings()

    def __post_init__(self) -> None:
        """Checks the numbers."""
        POSITIVE.check(**{"robot.device_hz": self.device_hz, "robot.control_hz": self.control_hz})
        for name in ("approach_s", "home_s"):
            if (seconds := getattr(self, name)) is not None:
                NOT_NEGATIVE.check(**{f"robot.{name}": seconds})
        if self.lock_step and not self.emulated:
            raise ValueError("Only an emulated robot can run in lock-step: robot.lock_step=false.")
        self._check_inputs()

    def _check_inputs(self) -> None:
        if self.start not in (None, *STARTS):
            raise unknown_name("robot.start", str(self.start), STARTS)
        if self.start == IMMEDIATELY and not self.emulated:
            raise ValueError("robot.start=immediately is for emulated arms; real arms: key.")
        if isinstance(self.hold_to_run, str) and self.hold_to_run != KEY:
            raise ValueError(
                f"robot.hold_to_run is {self.hold_to_run!r}; allowed: null, key, the port and "
                "signal of a line, or the input of a controller."
            )
        if isinstance(self.hold_to_run, ControllerInput) and self.transport != FRI:
            raise ValueError(
                f"robot.hold_to_run is the input {self.hold_to_run.input!r} of a controller, and "
                f"robot.transport is {self.transport!r}; allowed: {FRI!r}."
            )
        if self.lock_step and (self.hold_to_run is not None or self.stop_line is not None):
            raise ValueError(
                "robot.hold_to_run and robot.stop_line act in real time: robot.lock_step=false."
            )

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the settings of a configuration."""
        chosen = known_settings("a robot", plain, cls)
        for name in ("control_hz", "device_hz"):
            chosen[name] = float(chosen[name])
        for name in ("cameras_file", "calibration_file", "limits_file"):
            if name in chosen:
                chosen[name] = Path(chosen[name])
        for name, part in (("leaders", LeaderSettings), ("teleoperation", TeleoperationSettings)):
            if name in chosen:
                chosen[name] = part(**known_settings(f"robot.{name}", chosen[name], part))
        for name in ("hold_to_run", "stop_line"):
            if isinstance(given := chosen.get(name), Mapping):
                pedal = name == "hold_to_run" and "input" in given
                chosen[name] = ControllerInput.of(given) if pedal else LineSettings.of(given)
        return cls(**chosen)

    @property
    def starts_by_key(self) -> bool:
        """Whether the operator starts the motion."""
        return self.start == KEY or (self.start is None and not self.emulated)

    @property
    def default_limits(self) -> Arguments:
        """Limits of the shipped configuration of real arms; see `merged_limits`."""
        if self.backend is not None:
            return DEFAULT_LIMITS
        return _ALOHA_LIMITS if self.transport is None else _KUKA_LIMITS

    @property
    def emulated(self) -> bool:
        """Whether the arms are emulated."""
        return self.emulator is not None


def known_settings(owner: str, plain: Mapping[str, Any], settings: type) -> dict[str, Any]:
    """Returns the settings that are not null.

    Raises:
        ValueError: A setting is unknown; names the nearest.
    """
    known = [each.name for each in fields(settings)]
    for name in plain:
        if name not in known:
            raise unknown_name(f"setting of {owner}", str(name), known)
    return {name: value for name, value in plain.items() if value is not None}
