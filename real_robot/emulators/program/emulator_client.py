"""An emulator as its users see it: a process to start, control and end.

`LeaderEmulator` has leader arms, `FriEmulator` KUKA arms over FRI, and `LcmEmulator` KUKA arms
behind drake-iiwa-driver.
"""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import stringline
from stringline.datasets.contract.contract import Array, Camera
from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.program.emulator_settings import (
    OF_THE_ARMS,
    AlohaSettings,
    EmulatorSettings,
    FriSettings,
    LcmSettings,
    LeaderSettings,
)
from stringline.real_robot.ipc.array_messages import Header, Json, receive, send

_PROGRAM = "stringline.real_robot.emulators.emulate"
_START_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0


class EmulatorError(RuntimeError):
    """The emulator refused a request, or is gone."""


class Emulator:
    """An emulator in a process of its own; a context manager that ends it.

    This class emulates the followers of an ALOHA; others are derived from it.

    Args:
        **settings: Fields of `SETTINGS`.

    Attributes:
        ports: Port that a driver opens, by arm, once it is started.
        images: Address where camera processes get their images, once it is started.
    """

    SETTINGS: ClassVar[type[EmulatorSettings]] = AlohaSettings

    def __init__(self, **settings: Any) -> None:
        self.settings = self.SETTINGS(**settings)
        self.ports: dict[str, str] = {}
        self.images = ""
        self._process: subprocess.Popen[str] | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the program and connects to it.

        Raises:
            EmulatorError: It does not come up.
        """
        command = [sys.executable, "-m", _PROGRAM, "--settings", self.settings.document()]
        # The package may run from a checkout that is not installed.
        where = os.pathsep.join(
            [str(Path(stringline.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        # In a session of its own, so that a Ctrl-C reaches only the program that handles it.
        # Nothing is written to its input, whose end shows that this process is gone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": where.rstrip(os.pathsep)},
        )
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)[0]
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise EmulatorError(f"The emulator did not start: {' '.join(command)}")
        found = json.loads(line)
        self.ports = found["ports"]
        self.images = found["images"]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_TIMEOUT_S)
        self._socket.connect(found["socket"])

    def close(self) -> None:
        """Ends the program."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                self._process.wait(_END_TIMEOUT_S if self.ports else 0.1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def pid(self) -> int | None:
        """Number of the process, once it is started."""
        return None if self._process is None else self._process.pid

    def begin(self, seed: int, options: Mapping[str, Any] | None = None) -> None:
        """Begins the episode of a seed."""
        self._request({"operation": "begin", "seed": seed, "options": dict(options or {})})

    def advance(self, writes: Mapping[str, int]) -> Header:
        """Advances by one period of lock-step, and returns the outcome of the episode.

        Before that, each arm must have received its number of `writes` in this episode.
        """
        counts: dict[str, Json] = dict(writes)
        return self._request({"operation": "advance", "writes": counts})[0]

    def outcome(self) -> Header:
        """Returns `success`, `stage`, `stage_name`, `time` and `expired` of the episode."""
        return self._request({"operation": "outcome"})[0]

    def frames(self) -> dict[str, Array]:
        """Returns the latest images in lock-step, by the keys of the contract."""
        return self._request({"operation": "frames"})[1]

    def fault(self, arm: str, kind: str, servo: int = 0) -> None:
        """Begins or ends a fault, named as in the `fault` method of the emulated device."""
        self._request({"operation": "fault", "arm": arm, "kind": kind, "servo": servo})

    def put(self, arm: str, opening: float) -> None:
        """Puts an object between the pads of an arm without a task; see `HeldObjects`."""
        self._request({"operation": "put", "arm": arm, "opening": opening})

    def carried(self, arm: str) -> bool:
        """Returns whether an arm without a task carries an object."""
        return bool(self._request({"operation": "carried", "arm": arm})[0]["carried"])

    def _request(self, header: Header) -> tuple[Header, dict[str, Array]]:
        if self._socket is None:
            raise EmulatorError("The emulator is not running.")
        try:
            send(self._socket, header)
            answer, arrays = receive(self._socket)
        except OSError as error:
            raise EmulatorError(f"The emulator is gone: {error}.") from error
        if "error" in answer:
            raise EmulatorError(str(answer["error"]))
        return answer, arrays


class LeaderEmulator(Emulator):
    """The emulated leaders of an ALOHA, in a scripted hand."""

    SETTINGS: ClassVar[type[EmulatorSettings]] = LeaderSettings


def square_size(cameras: Sequence[Camera]) -> int:
    """Returns the rows and columns of emulated images for the cameras of a policy.

    Raises:
        ValueError: They are not square, or of several sizes.
    """
    sizes = {(camera.height, camera.width) for camera in cameras} or {(128, 128)}
    height, width = next(iter(sizes))
    if len(sizes) > 1 or height != width:
        raise ValueError(
            f"The policy expects images of {sorted(sizes)} pixels; emulated cameras draw square "
            f"images of one size."
        )
    return height


@dataclass(frozen=True)
class ControllerReport:
    """Statistics of a controller since it was switched on.

    Attributes:
        periods: Messages sent.
        in_time: Number of these that were answered before the next.
        stops: Reasons for which it has stopped its arm, oldest first.
    """

    periods: int
    in_time: int
    stops: tuple[str, ...]
    state: str


class KukaEmulator(Emulator):
    """Emulated KUKA arms, over FRI or behind a driver program."""

    def reboot(self, *, patient: bool = False) -> None:
        """Switches all controllers off and on.

        In lock-step sessions come up by themselves again, until the next episode; over FRI, if
        `patient`, controllers advance only by `nudge`.
        """
        self._request({"operation": "reboot", "patient": patient})

    def _reports(self) -> dict[str, dict[str, Any]]:
        """Returns the fields of the report of each arm since it was switched on."""
        found: Any = self._request({"operation": "report"})[0]["report"]
        return {arm: {**entry, "stops": tuple(entry["stops"])} for arm, entry in found.items()}


class FriEmulator(KukaEmulator):
    """Emulated KUKA controllers with FRI; `ports` are `address:number` that a driver opens, by arm.

    Args:
        gripper: Settings of the driver's grippers; only grippers with a connection of their own
            make a difference here.
        **settings: Fields of `FriSettings`; None stands for the default.
    """

    SETTINGS: ClassVar[type[EmulatorSettings]] = FriSettings

    def __init__(self, *, gripper: Mapping[str, Any] | None = None, **settings: Any) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        found = gripper_settings(gripper, ())
        if isinstance(found, WsgGripper):
            given |= {
                "gripper": WSG_LCM,
                "gripper_address": found.address,
                "gripper_interface": found.interface,
                "gripper_commands": found.command_channel,
                "gripper_states": found.status_channel,
            }
        super().__init__(**given)

    def nudge(self, arm: str) -> None:
        """Makes a controller send its next message, answered or not.

        Only in lock-step, before the first episode.
        """
        self._request({"operation": "nudge", "arm": arm})

    def report(self) -> dict[str, ControllerReport]:
        """Returns the statistics of each controller since it was switched on, by arm."""
        return {arm: ControllerReport(**entry) for arm, entry in self._reports().items()}


@dataclass(frozen=True)
class ProgramReport(ControllerReport):
    """Statistics of an arm and its driver program; `periods` are statuses, `in_time` commands.

    Attributes:
        ended: Reason for which the program has ended itself; empty while it runs.
        inhibited: Whether it ignores commands because the arm's motion has begun a second time.
    """

    ended: str
    inhibited: bool


class LcmEmulator(KukaEmulator):
    """Emulated KUKA arms behind drake-iiwa-driver; `ports` are `group:port` of LCM by arm.

    Args:
        gripper: Gripper beside each arm, in the group of the arms; if None, the arms have none.
        **settings: Fields of `LcmSettings`; None stands for the default.
    """

    SETTINGS: ClassVar[type[EmulatorSettings]] = LcmSettings

    def __init__(self, *, gripper: WsgGripper | None = None, **settings: Any) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        if gripper is None:
            given["gripper"] = OF_THE_ARMS
        else:
            given |= {
                "gripper": WSG_LCM,
                "gripper_commands": gripper.command_channel,
                "gripper_states": gripper.status_channel,
            }
        super().__init__(**given)

    def report(self) -> dict[str, ProgramReport]:
        """Returns the statistics of each arm since it was switched on."""
        return {arm: ProgramReport(**entry) for arm, entry in self._reports().items()}
