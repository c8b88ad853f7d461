"""The worlds that emulated robots move: their interface, the simplest one, and their images.

In `FirstOrderPlant` joints only follow their targets; objects between the pads of grippers stop
the pads, and fall when these push too little. Cameras show a test pattern, whose colour is the
number of the image. `HandPlant` is a scripted hand, which moves emulated leaders along a path,
whatever their servos do.

Cameras in processes of their own get images from `ImageServer`. Each camera has a thread, so that
a stopped one delays neither the others nor the emulated servos.
"""

import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.ipc.array_messages import Header, receive, send

_DISTANCE_MM = 1000
_FOVY_DEG = 58.0


class TestPattern:
    """A uniformly coloured plane in front of each camera, one metre away.

    The colour is the number of the image in base 256: its lowest digit is red, the next green, then
    blue.

    Args:
        size: Rows and columns of the images.
        hz: Images per second.
    """

    def __init__(self, cameras: Sequence[str], size: int, hz: float) -> None:
        self._cameras = tuple(cameras)
        self._size = size
        self._hz = hz
        focal = size / 2 / np.tan(np.radians(_FOVY_DEG) / 2)
        self._intrinsics = np.array(
            [[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1]], dtype=np.float32
        )
        self._number = -1
        self._shown: dict[str, Array] = {}

    def at(self, seconds: float) -> dict[str, Array]:
        """Returns the images of a time; the same ones until the next are due."""
        number = int(seconds * self._hz + 1e-6)
        if number != self._number and self._cameras:
            self._number = number
            self._shown = {}
            for camera in self._cameras:
                self._shown[f"rgb/{camera}"] = self._colour(number)
                self._shown[f"depth/{camera}"] = np.full(
                    (self._size, self._size), _DISTANCE_MM, dtype=np.uint16
                )
                self._shown[f"intrinsics/{camera}"] = self._intrinsics
                self._shown[f"time/{camera}"] = np.asarray(number / self._hz)
        return self._shown

    def _colour(self, number: int) -> Array:
        digits = [number >> shift & 0xFF for shift in (0, 8, 16)]
        return np.tile(np.array(digits, dtype=np.uint8), (self._size, self._size, 1))


# The pads push like springs whose other end is at the target, N per opening.
_STIFFNESS = 43.0
# Force of the pads that carries an object by friction, N.
_CARRIES_N = 5.0
_OPENING = Range(above=0, below=1)


@dataclass
class _Object:
    """An object: the opening at which the pads touch it, and whether they carry it already."""

    opening: float
    carried: bool = False


class HeldObjects:
    """At most one object per arm, put between its pads by a hand.

    Once the pads carry an object, the hand lets go of it; from then on it falls as soon as the pads
    push with less than its weight needs, and is gone.
    """

    def __init__(self, embodiment: Embodiment) -> None:
        self._grippers: Mapping[str, int] = embodiment.grippers
        self._objects: dict[int, _Object] = {}

    def put(self, arm: str, opening: float) -> None:
        """Puts an object between the pads of an arm.

        Args:
            arm: Name of the arm.
            opening: Opening at which the pads touch it, between 0 and 1.

        Raises:
            ValueError: The arm or the opening is unknown.
        """
        _OPENING.check(opening=opening)
        self._objects[self._joint(arm)] = _Object(opening)

    def clear(self) -> None:
        """Removes all objects."""
        self._objects.clear()

    def carried(self, arm: str) -> bool:
        """Returns whether the pads of an arm carry an object.

        Raises:
            ValueError: The arm is unknown.
        """
        found = self._objects.get(self._joint(arm))
        return found is not None and found.carried

    def _joint(self, arm: str) -> int:
        if arm not in self._grippers:
            raise unknown_name("arm", arm, self._grippers)
        return self._grippers[arm]

    def stop(self, position: Vector, target: Vector, largest: Vector) -> tuple[Vector, Vector]:
        """Stops pads at objects.

        Args:
            position: (J,) positions without objects.
            target: (J,) targets of the joints.
            largest: (J,) limits of the joints' efforts, Nm and N.

        Returns:
            The positions (J,), and the efforts (J,) against the objects, negative where pads close.
        """
        position = position.copy()
        efforts = np.zeros_like(position)
        for joint, one in list(self._objects.items()):
            if position[joint] > one.opening and not one.carried:
                continue
            push = max(_STIFFNESS * float(one.opening - target[joint]), 0.0)
            push = min(push, float(largest[joint]))
            if push < _CARRIES_N and one.carried:
                del self._objects[joint]
                continue
            one.carried |= push >= _CARRIES_N
            position[joint] = max(position[joint], one.opening)
            efforts[joint] = -push
        return position, efforts


_TIME_CONSTANT_S = 0.05  # In which a joint covers 63 % of the way.
_FROM_CAMERAS = ("rgb/", "depth/", "intrinsics/", "time/")


def from_cameras(seen: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the parts of an observation that real cameras measure; their poses are not."""
    return {key: value for key, value in seen.items() if key.startswith(_FROM_CAMERAS)}


def outcome_without_success(time: float, *, expired: bool) -> dict[str, bool | int | float | str]:
    """Returns the outcome of a world without a task; `time` in seconds."""
    return {"success": False, "stage": 0, "stage_name": "start", "time": time, "expired": expired}


class Plant(Protocol):
    """Joints that follow targets. Vectors are (J,) in the order and units of the embodiment."""

    @property
    def period_s(self) -> float:
        """Seconds by which `advance` advances the world."""
        ...

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins an episode."""
        ...

    def limit_efforts(self, largest: Vector) -> None:
        """Limits the efforts of the joints from now on; infinite: only their own limits hold."""
        ...

    def advance(self, target: Vector) -> None:
        """Drives the joints towards the targets for one period."""
        ...

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts."""
        ...

    def frames(self) -> dict[str, Array]:
        """Returns the latest images by the keys of the contract, in times of the plant."""
        ...

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns `success`, `stage`, `stage_name`, `time` in seconds and `expired`."""
        ...

    def close(self) -> None:
        """Frees its resources."""
        ...


class FirstOrderPlant:
    """Joints that approach their targets exponentially, without gravity.

    The only contacts are those of grippers with objects.

    Args:
        time_limit_s: Seconds until an episode expires.

    Attributes:
        objects: What is between the pads of the grippers.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        *,
        period_s: float = 0.01,
        time_limit_s: float = 15.0,
        pattern: TestPattern | None = None,
    ) -> None:
        self._pattern = pattern
        self._home = embodiment.home
        self.period_s = period_s
        self._time_limit_s = time_limit_s
        self._share = 1 - np.exp(-period_s / _TIME_CONSTANT_S)
        self._position = self._home.copy()
        self._velocity = np.zeros_like(self._home)
        self._effort = np.zeros_like(self._home)
        self._largest = np.full_like(self._home, np.inf)
        self.objects = HeldObjects(embodiment)
        self._steps = 0

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Moves the joints to the home pose, whatever the seed; options are refused."""
        if options:
            raise ValueError(f"The first-order plant has no options; got {', '.join(options)}.")
        self._position = self._home.copy()
        self._velocity = np.zeros_like(self._home)
        self._effort = np.zeros_like(self._home)
        self.objects.clear()
        self._steps = 0

    def limit_efforts(self, largest: Vector) -> None:
        """Limits the efforts (J,) with which grippers push against objects, N."""
        self._largest = largest

    def advance(self, target: Vector) -> None:
        """Covers a fixed share of the way to the targets."""
        before = self._position
        free = before + self._share * (target - before)
        self._position, self._effort = self.objects.stop(free, target, self._largest)
        self._velocity = (self._position - before) / self.period_s
        self._steps += 1

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities, and the efforts of grippers against objects."""
        return self._position, self._velocity, self._effort

    def frames(self) -> dict[str, Array]:
        """Returns the images of this time."""
        return {} if self._pattern is None else self._pattern.at(self._steps * self.period_s)

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns an outcome without success."""
        time = self._steps * self.period_s
        return outcome_without_success(time, expired=time >= self._time_limit_s - 1e-9)

    def close(self) -> None:
        """Does nothing."""


def save_hand(path: Path, time: Vector, position: Vector) -> None:
    """Writes a path: times (T,) in seconds, positions (T, J) in units of the embodiment."""
    with path.open("wb") as file:
        np.savez(file, time=time, position=position)


def load_hand(path: Path, joints: int) -> tuple[Vector, Vector]:
    """Reads a path for that number of joints.

    Raises:
        ValueError: The file is not a path, or is for another embodiment.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            time = arrays["time"].astype(np.float64)
            position = arrays["position"].astype(np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not the path of a hand: {error}.") from error
    grows = time.ndim == 1 and len(time) > 0 and bool((np.diff(time) > 0).all())
    if not grows or position.shape != (len(time), joints) or not np.isfinite(position).all():
        raise ValueError(
            f"The path in {path} has times {time.shape} and positions {position.shape}; allowed: "
            f"growing times (T,) and finite positions (T, {joints})."
        )
    return time - time[0], position


class HandPlant:
    """Joints held by a hand: at the beginning of the path until an episode begins, then along it.

    Args:
        time: (T,) seconds of the path, from 0.
        position: (T, J) positions.
    """

    def __init__(self, time: Vector, position: Vector, *, period_s: float = 0.01) -> None:
        self._time = time
        self._path = position
        self.period_s = period_s
        self._begun = False
        self._steps = 0

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins the path, whatever the seed; options are refused."""
        if options:
            raise ValueError(f"A hand has no options; got {', '.join(options)}.")
        self._begun = True
        self._steps = 0

    def limit_efforts(self, largest: Vector) -> None:
        """Does nothing: the hand is stronger than the servos."""

    def advance(self, target: Vector) -> None:
        """Advances by one period; the hand is stronger than the servos, so targets do not count."""
        self._steps += self._begun

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and zero efforts."""
        now = self._at(self._steps)
        velocity = (now - self._at(max(self._steps - 1, 0))) / self.period_s
        return now, velocity, np.zeros_like(now)

    def _at(self, steps: int) -> Vector:
        time = steps * self.period_s
        return np.array([np.interp(time, self._time, joint) for joint in self._path.T])

    def frames(self) -> dict[str, Array]:
        """Returns no images."""
        return {}

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns an outcome without success; the episode expires at the end of the path."""
        time = self._steps * self.period_s
        return outcome_without_success(time, expired=time >= float(self._time[-1]))

    def close(self) -> None:
        """Does nothing."""


log = logging.getLogger(__name__)

_PATIENCE_S = 4.0


class ImageServer:
    """Answers each camera with the newest image once it is newer than the camera's last.

    Args:
        listener: Socket where cameras connect; the caller closes it.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._new = threading.Condition()
        self._frames: dict[str, Array] = {}
        self._number = 0
        threading.Thread(target=self._accept, name="stringline images", daemon=True).start()

    def show(self, frames: Mapping[str, Array], captured: float) -> None:
        """Takes the images of all cameras, by the keys of the contract.

        `captured` is their time, seconds of the host's monotonic clock.
        """
        stamped = {
            key: np.asarray(captured) if key.startswith("time/") else value
            for key, value in frames.items()
        }
        with self._new:
            self._frames = stamped
            self._number += 1
            self._new.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                camera, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(camera,), name="stringline images", daemon=True
            ).start()

    def _serve(self, camera: socket.socket) -> None:
        with camera:
            try:
                while True:
                    header, _ = receive(camera)
                    send(
                        camera,
                        *self._answer(str(header.get("camera")), int(str(header.get("after", 0)))),
                    )
            except (OSError, ValueError) as error:
                log.debug("A camera left: %s", error)

    def _answer(self, camera: str, after: int) -> tuple[Header, dict[str, Array]]:
        with self._new:
            self._new.wait_for(lambda: self._number > after, _PATIENCE_S)
            frames = self._frames
            number = self._number
        found = {key: value for key, value in frames.items() if key.endswith(f"/{camera}")}
        if number <= after:
            return {"error": f"the emulated world has drawn no image for {_PATIENCE_S:g} s."}, {}
        if not found:
            return {"error": f"the emulator has no camera {camera!r}."}, {}
        return {"number": number}, found
