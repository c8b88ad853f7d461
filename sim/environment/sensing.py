"""What a world measures: images and geometry of its cameras, times of frames, delays, joints.

The segments of an image: nothing, the table, the arms and the objects on the table.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.mjcf_parts import CAMERA_FLIP
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.looks.looks import FLOOR, WALLS
from stringline.sim.rendering.rendering import Renderer, Rendering, intrinsics
from stringline.sim.shifts.shift import Shot
from stringline.sim.tasks.tabletop import TabletopTask

Value = TypeVar("Value")


class Delayed(Generic[Value]):
    """A queue of values captured `steps` ago; until one has arrived, the earliest replaces it."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._line: deque[tuple[int, Value]] = deque()

    def __copy__(self) -> "Delayed[Value]":
        found = Delayed[Value](self.steps)
        found._line = self._line.copy()
        return found

    def clear(self) -> None:
        """Drops all values."""
        self._line.clear()

    @property
    def captured(self) -> int | None:
        """Step of the latest capture, or None."""
        return self._line[-1][0] if self._line else None

    def put(self, step: int, value: Value) -> None:
        """Captures a value at a step; a second value at the same step replaces the first."""
        if self.captured == step:
            self._line.pop()
        self._line.append((step, value))
        self.at(step)

    def at(self, step: int) -> Value:
        """Returns the latest value that has arrived by a step, and drops those before it."""
        while len(self._line) > 1 and self._line[1][0] <= step - self.steps:
            self._line.popleft()
        return self._line[0][1]


def delay_steps(name: str, seconds: float, control_hz: float) -> int:
    """Returns a delay in control periods.

    Raises:
        ValueError: The delay is negative, or not a multiple of the control period.
    """
    steps = seconds * control_hz
    if not 0 <= steps < float("inf") or abs(steps - round(steps)) > 1e-6:
        raise ValueError(
            f"{name} is {seconds} s; allowed: 0 and the multiples of the control period "
            f"({1 / control_hz:g} s)."
        )
    return round(steps)


class FrameSchedule:
    """The clock of an episode, in steps of the control period, and its captured values.

    `look` draws a frame of all cameras, given the seconds since the episode began, and `measure`
    returns the current joints and gripper poses. `observe` returns both after their delays.

    Attributes:
        step: Number of control periods since the episode began.

    Raises:
        ValueError: A rate is not positive, `frame_hz` does not divide `control_hz`, or a delay is
            not a multiple of the control period.
    """

    def __init__(
        self,
        control_hz: float,
        frame_hz: float,
        *,
        look: Callable[[float], Mapping[str, Array]],
        measure: Callable[[], Mapping[str, Array]],
        image_delay_s: float = 0.0,
        joint_delay_s: float = 0.0,
    ) -> None:
        POSITIVE.check(control_hz=control_hz, frame_hz=frame_hz)
        every = control_hz / frame_hz
        if every < 1 or abs(every - round(every)) > 1e-9:
            raise ValueError(f"frame_hz is {frame_hz}; it must divide control_hz ({control_hz}).")
        self.step = 0
        self._control_hz = control_hz
        self._every = round(every)
        self._look = look
        self._measure = measure
        self._frames = Delayed[Mapping[str, Array]](
            delay_steps("image_delay_s", image_delay_s, control_hz)
        )
        self._measured = Delayed[Mapping[str, Array]](
            delay_steps("joint_delay_s", joint_delay_s, control_hz)
        )

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        return self.step / self._control_hz

    @property
    def frame_due(self) -> bool:
        """Whether a new frame arrives at this step."""
        captured = self.step - self._frames.steps
        return self.step == 0 or (captured > 0 and captured % self._every == 0)

    def begin(self) -> None:
        """Begins an episode, without captured values."""
        self.step = 0
        self._frames.clear()
        self._measured.clear()

    def advance(self) -> None:
        """Counts a period, and captures the values that arrive later, if there are delays."""
        if self._measured.steps:
            self._measured.put(self.step, self._measure())
        if (
            self._frames.steps
            and self.step % self._every == 0
            and self._frames.captured != self.step
        ):
            self._frames.put(self.step, self._look(self.time))
        self.step += 1

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns time, joints, gripper poses and, with `cameras`, the latest frame.

        The arrays must not be changed.
        """
        self._measured.put(self.step, self._measure())
        observation = {"time": np.asarray(self.time), **self._measured.at(self.step)}
        if cameras:
            since_due = self.step % self._every
            captured = self._frames.captured
            if not since_due or captured is None or captured < self.step - since_due:
                self._frames.put(self.step, self._look(self.time))
            observation |= self._frames.at(self.step)
        return observation


def check_time_limit(seconds: float) -> None:
    """Checks the time limit of episodes, in seconds; it may be infinite.

    Raises:
        ValueError: The limit is not positive.
    """
    if seconds != math.inf:
        POSITIVE.check(time_limit_s=seconds)


def joint_state(
    embodiment: Embodiment, position: Vector, velocity: Vector, effort: Vector
) -> dict[str, Array]:
    """Returns joints (J,), in rad, openings, Nm and N, and their gripper poses by contract keys."""
    poses = embodiment.forward_kinematics(position)
    return {
        "joints/position": position.astype(np.float32),
        "joints/velocity": velocity.astype(np.float32),
        "joints/effort": effort.astype(np.float32),
        **{f"T_base_gripper/{arm}": T.astype(np.float32) for arm, T in poses.items()},
    }


NOTHING = "nothing"
TABLE = "table"


@dataclass(frozen=True)
class Segments:
    """The numbered segments of one task.

    Attributes:
        names: Names by number: 0 `nothing`, 1 `table`, then the arms (2 `left` and 3 `right` if
            there are two), then the task's objects in the order in which the task adds them, so
            that a task's numbers never change.
        of_geom: (G,), segment of each geom of the compiled model.
        first_object: Number of the task's first object.
    """

    names: tuple[str, ...]
    of_geom: NDArray[np.uint8]
    first_object: int

    @property
    def objects(self) -> NDArray[np.bool_]:
        """(G,), whether each geom belongs to an object of the task."""
        return self.of_geom >= self.first_object


def segments(task: TabletopTask, physics: mjcf.Physics) -> Segments:
    """Numbers the segments of a task; its entities besides the robot are its objects."""
    names = [NOTHING, TABLE, *task.embodiment.arms]
    of_geom = np.full(physics.model.ngeom, names.index(TABLE), dtype=np.uint8)
    for name in (FLOOR, *WALLS):
        of_geom[physics.model.name2id(name, "geom")] = names.index(NOTHING)
    for arm in task.embodiment.arms:
        of_geom[_numbers(physics, task.robot.shapes(arm))] = names.index(arm)
    first_object = len(names)
    for entity in task.root_entity.iter_entities(exclude_self=True):
        if entity is not task.robot:
            of_geom[_numbers(physics, entity.mjcf_model.find_all("geom"))] = len(names)
            names.append(str(entity.mjcf_model.model))
    return Segments(tuple(names), of_geom, first_object)


def _numbers(physics: mjcf.Physics, shapes: list[mjcf.Element]) -> NDArray[np.int_]:
    return np.array(
        [physics.model.name2id(shape.full_identifier, "geom") for shape in shapes], dtype=int
    )


def common_image_size(cameras: Sequence[Camera]) -> int | tuple[int, int]:
    """Returns the image size that a world needs for the cameras of a policy.

    It is one number for square images, else rows and columns; without cameras 128.

    Raises:
        ValueError: The cameras have images of several sizes.
    """
    sizes = {(camera.height, camera.width) for camera in cameras} or {(128, 128)}
    if len(sizes) > 1:
        got = ", ".join(f"{camera.name} {camera.height}x{camera.width}" for camera in cameras)
        raise ValueError(
            f"The policy needs images of several sizes ({got}); worlds draw all images in one size."
        )
    rows, columns = sizes.pop()
    return rows if rows == columns else (rows, columns)


class Cameras:
    """Draws the images of a task's cameras, with its shifts of depth and camera poses.

    `size` has rows and columns of the images, `segments` the names of all segments.

    Raises:
        ValueError: There is no such camera or rendering mode, or the size is not allowed.
    """

    def __init__(
        self,
        physics: mjcf.Physics,
        task: TabletopTask,
        names: Sequence[str],
        size: tuple[int, int],
        *,
        segmentation: bool,
        rendering: Rendering,
    ) -> None:
        fovy = {mount.name: mount.fovy_deg for mount in task.embodiment.cameras}
        for name in names:
            if name not in fovy:
                raise unknown_name("camera", name, fovy)
        parts = segments(task, physics)
        self.segments = parts.names
        self._physics = physics
        self._segmentation = segmentation
        self._shifts = task.shifts
        self._numbers = {name: _number(physics, name) for name in names}
        shown = names or (["overhead"] if "overhead" in fovy else list(fovy))
        self._shown = _number(physics, shown[0])
        self._intrinsics = {name: intrinsics(*size, fovy[name]) for name in names}
        self._renderer = Renderer(
            physics.model.ptr,
            *size,
            rendering=rendering,
            casters=parts.objects,
            segments=parts.of_geom if segmentation else None,
            scenery=task.shifts.looks.scenery,
        )

    def frame(self, time: float) -> dict[str, Array]:
        """Returns current images and geometry of all cameras, with the capture time `time`."""
        found: dict[str, Array] = {}
        if self._numbers:
            self._renderer.update(self._physics.data.ptr)
        for name, number in self._numbers.items():
            found[f"rgb/{name}"], depth = self._renderer.image(number)
            found[f"depth/{name}"] = self._shifts.measured(
                depth, Shot(name, time, self._intrinsics[name])
            )
            if self._segmentation:
                found[f"segmentation/{name}"] = self._renderer.segmentation(number)
            found[f"time/{name}"] = np.asarray(time)
            found[f"intrinsics/{name}"] = self._intrinsics[name]
            found[f"T_base_camera/{name}"] = self._shifts.reported(
                camera_pose(self._physics.data, number), number
            ).astype(np.float32)
        return found

    def image(self) -> NDArray[np.uint8]:
        """Returns an image (H, W, 3) of the first camera, or else of the overhead one."""
        self._renderer.update(self._physics.data.ptr)
        return self._renderer.image(self._shown)[0]

    def close(self) -> None:
        """Frees the graphics."""
        self._renderer.close()


def camera_pose(data: Any, number: int) -> Matrix:
    """Returns the current pose (4, 4) of a camera in the world frame, by the contract's axes."""
    return pose(data.cam_xpos[number], data.cam_xmat[number].reshape(3, 3)) @ CAMERA_FLIP


def _number(physics: mjcf.Physics, name: str) -> int:
    """Returns the number of a camera; its name may have prefixes: `aloha/left/wrist_left`."""
    model = physics.model
    names = [model.id2name(number, "camera").split("/")[-1] for number in range(model.ncam)]
    return names.index(name)
