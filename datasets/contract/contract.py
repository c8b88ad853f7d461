"""The data contract: keys, shapes, units and frames of observations, actions and episodes.

Simulation, teleoperation, importers and the hardware bridge produce these keys, policies consume
them, `check_observation`, `check_action` and `check_episode` check them. An observation is a flat
mapping from key to array; an episode has time as the leading axis:

    key                   observation      episode           unit, frame
    rgb/<camera>          (H, W, 3) uint8  (F, H, W, 3)      sRGB, at the rate of the camera
    depth/<camera>        (H, W) uint16    (F, H, W)         `depth_unit_m`; 0 = no return
    frame/<camera>        -                (T,) int32        which of the F frames step t saw
    time/<camera>         () float64       (F,)              s, capture times
    intrinsics/<camera>   (3, 3) float32   (3, 3)            pixels of the stored resolution
    T_base_camera/<camera>  (4, 4) float32 (4, 4), (F, 4, 4) camera to base
    joints/position       (J,) float32     (T, J)            rad; grippers 0 (closed) to 1 (open)
    joints/velocity       (J,) float32     (T, J)            rad/s; grippers 1/s
    joints/effort         (J,) float32     (T, J)            Nm; grippers N
    T_base_gripper/<arm>  (4, 4) float32   (T, 4, 4)         gripper (TCP) to base
    action                -                (T, A) float32    see `ActionDimension`
    time                  () float64       (T,)              s, one monotonic clock
    segmentation/<camera>  (H, W) uint8    (F, H, W)         optional; numbers of segments
    reward, stage, sim/state  -            (T, ...)          optional
    series/<name>         -                (T, ...) float    optional; no input of policies
    expert/step           -                (L,) int32        optional; steps with labels, rising
    expert/action         -                (L, H, A) float32 optional; what an expert would do there
    instruction           (L,) uint8       an attribute      text in UTF-8; optional

Where a policy acts, `expert/action` are labels: the H actions of an expert that takes over at the
step `expert/step`, from the state there. Its last action is repeated after the end of its motion.

Further series of a recording, such as forces or the state of the environment, are `series/<name>`,
finite numbers of float32 or float64 in the units of the recording.

A segmentation has 0 where an image shows the room or nothing, 1 on the table, and from 2 on arms
and objects, with the same numbers in all images of an episode.

The camera frame is x right, y down, z forward; depth is along its z axis. Pixel (0, 0) is the
upper left one and its centre lies at (0.5, 0.5). `T_ab` takes coordinates in b to a. This module
imports neither torch nor MuJoCo.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import Range, unknown_name

Array = NDArray[Any]
Observation = Mapping[str, Array]
EpisodeArrays = Mapping[str, Array]

_CONTROL_HZ = Range(least=0.01, most=10_000)

SERIES = "series/"
"""Beginning of the keys of further series, which no policy reads."""

LABELLED_STEPS, LABELS = "expert/step", "expert/action"
"""Keys of the labels of an expert."""

FIRST_FOREGROUND_SEGMENT = 2
"""The segments below are background: 0 the room or nothing, 1 the table."""

ActionKind = Literal["joint", "gripper", "position", "rotation"]
ActionMode = Literal["absolute", "relative"]
DepthSource = Literal["measured", "simulated", "estimated"]


@dataclass(frozen=True)
class Camera:
    """One camera of the contract.

    Attributes:
        name: The part of the key after `rgb/`.
        height: Rows of the stored images.
        width: Columns of the stored images.
        depth: Source of the depth images; None without depth.
        depth_unit_m: Metres per count of the stored depth, 0.001 or finer.
        has_geometry: Whether intrinsics and `T_base_camera` are known.
        distortion_model: `none`, or the name of the distortion model.
        distortion: Coefficients of the distortion model.
    """

    name: str
    height: int
    width: int
    depth: DepthSource | None = None
    depth_unit_m: float = 0.001
    has_geometry: bool = True
    distortion_model: str = "none"
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ValueError(
                f"Camera {self.name!r} has size {self.height}x{self.width}; both must be positive."
            )
        if self.depth is not None and not 0 < self.depth_unit_m <= 0.001:
            raise ValueError(
                f"Camera {self.name!r}: depth_unit_m is {self.depth_unit_m}; allowed: above 0 and "
                "at most 0.001 m."
            )


_DECLARED = ("scale", "offset", "limits", "speed")


@dataclass(frozen=True)
class ActionDimension:
    """One dimension of an action.

    Attributes:
        name: Unique name, such as `left/waist`.
        arm: Name of the arm that moves.
        kind: Kind of the command; positions and rotation vectors, three numbers each in the order
            x, y, z, are those of `T_base_gripper/<arm>`.
        mode: Absolute target, or relative to the measured state.
        unit: `rad`, `m`, `opening` (gripper, 0 closed to 1 open).
        frame: `joint`, or the reference frame of a Cartesian dimension: `base`, or for relative
            ones `gripper`.
        scale: What the number 1 means more than 0, in the unit; negative if a larger number closes.
        offset: What the number 0 means, in the unit.
        limits: Least and greatest number; the robot clips others. None: unknown.
        speed: Fastest change that the robot follows, units/s. None: unknown.
    """

    name: str
    arm: str
    kind: ActionKind
    mode: ActionMode = "absolute"
    unit: str = "rad"
    frame: str = "joint"
    scale: float = 1.0
    offset: float = 0.0
    limits: tuple[float, float] | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if not self.scale or not np.isfinite([self.scale, self.offset]).all():
            raise ValueError(
                f"Action dimension {self.name!r} has scale {self.scale:g} and offset "
                f"{self.offset:g}; allowed: finite numbers, and no scale of 0."
            )
        if self.limits is not None:
            object.__setattr__(self, "limits", tuple(map(float, self.limits)))
            if len(self.limits) != 2 or not self.limits[0] < self.limits[1]:
                raise ValueError(
                    f"Action dimension {self.name!r} has limits {self.limits}; allowed: the least "
                    "and the greatest number."
                )
        if self.speed is not None and not 0 < self.speed < math.inf:
            raise ValueError(
                f"Action dimension {self.name!r} has speed {self.speed:g}; allowed: above 0."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain data, without declarations that say nothing."""
        plain = asdict(self)
        plain["limits"] = None if self.limits is None else list(self.limits)
        silent = {each.name: each.default for each in fields(self) if each.name in _DECLARED}
        return {
            key: each for key, each in plain.items() if key not in silent or each != silent[key]
        }


@dataclass(frozen=True)
class Contract:
    """The contract of all observations and actions of a data set, task or robot.

    Attributes:
        embodiment: Name of the embodiment, such as `aloha`.
        base_frame: Description of the frame that every `T_base_*` refers to.
        control_hz: Actions per second, 0.01 to 10,000.
        cameras: Cameras in a fixed order.
        joints: Names of the entries of `joints/*`; empty for data without joint state.
        arms: Names of the arms that have a `T_base_gripper/<arm>`.
        action: One entry per dimension of `action`.
        kinematics: Joints and links of a robot that is not built in, as plain lists, strings and
            numbers (`datasets/embodiments/embodiment_record.py`); if None, those of the name, if
            any.
    """

    embodiment: str
    base_frame: str
    control_hz: float
    cameras: tuple[Camera, ...]
    joints: tuple[str, ...]
    arms: tuple[str, ...]
    action: tuple[ActionDimension, ...]
    kinematics: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        _CONTROL_HZ.check(control_hz=self.control_hz)
        if not self.action:
            raise ValueError("A contract needs at least one action dimension.")
        if not self.cameras and not self.joints:
            raise ValueError("A contract needs at least one camera or a joint state.")
        for kind, names in (
            ("camera", [camera.name for camera in self.cameras]),
            ("joint", list(self.joints)),
            ("arm", list(self.arms)),
            ("action dimension", [dimension.name for dimension in self.action]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"The {kind} {twice[0]!r} occurs more than once in the contract.")

    def camera(self, name: str) -> Camera:
        """Returns a camera by name.

        Raises:
            ValueError: The camera does not exist; the message lists the nearest names.
        """
        for camera in self.cameras:
            if camera.name == name:
                return camera
        raise unknown_name("camera", name, [camera.name for camera in self.cameras])

    def described(self) -> list[str]:
        """Returns the embodiment, the rate, and the numbers of joints, actions and pixels."""
        cameras = [
            f"{each.name} {each.height}x{each.width}{'' if each.depth is None else ' with depth'}"
            for each in self.cameras
        ]
        return [
            self.embodiment,
            f"{self.control_hz:g} Hz",
            f"{len(self.joints)} joints",
            f"{len(self.action)} action dimensions",
            f"cameras: {'; '.join(cameras) or 'none'}",
        ]

    def with_cameras(self, *cameras: Camera) -> Self:
        """Returns the same contract with other cameras."""
        return replace(self, cameras=cameras)

    def to_dict(self) -> dict[str, Any]:
        """Returns the contract as plain lists, strings and numbers for JSON and YAML."""
        plain = asdict(self)
        plain["cameras"] = [
            dict(camera, distortion=list(camera["distortion"])) for camera in plain["cameras"]
        ]
        plain |= {key: list(plain[key]) for key in ("joints", "arms")}
        plain["action"] = [each.to_dict() for each in self.action]
        return {key: value for key, value in plain.items() if key != "kinematics" or value}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds a contract from the result of `to_dict`.

        Raises:
            ValueError: A field is missing or unknown.
        """
        try:
            cameras = tuple(
                Camera(**{**camera, "distortion": tuple(camera.get("distortion", ()))})
                for camera in plain["cameras"]
            )
            action = tuple(ActionDimension(**dimension) for dimension in plain["action"])
            rest = {key: value for key, value in plain.items() if key not in ("cameras", "action")}
            rest |= {key: tuple(rest[key]) for key in ("joints", "arms")}
            if not isinstance(rest.get("kinematics"), Mapping | None):
                raise TypeError("kinematics must be a mapping")
            return cls(cameras=cameras, action=action, **rest)
        except (KeyError, TypeError) as error:
            raise ValueError(f"The contract is invalid: {error}.") from error

    def incompatibilities(self, offered: "Contract") -> list[str]:
        """Lists the reasons why a policy for this contract cannot run on another one.

        Additional cameras are allowed; everything else must agree. Of two arms from files joints
        and chains must agree: their names, home poses and capsules have no effect on a policy,
        which keeps its own. Each reason is one sentence.
        """
        ours = self.kinematics
        theirs = offered.kinematics
        from_files = ours is not None and theirs is not None
        names = ("base_frame", "control_hz", "joints", "arms", "action")
        found = []
        for name in names if from_files else ("embodiment", *names):
            required = getattr(self, name)
            got = getattr(offered, name)
            if required != got:
                found.append(f"{name}: {_brief(required)} is required, {_brief(got)} is offered.")
        parts = [key for key in _MOVING_PARTS if (ours or {}).get(key) != (theirs or {}).get(key)]
        if parts:
            found.append(
                f"kinematics: those of {self.embodiment!r} are required, others are offered "
                f"(different: {', '.join(parts)}). Use the same file of the embodiment for "
                "recordings and robot."
            )
        available = {camera.name: camera for camera in offered.cameras}
        for camera in self.cameras:
            if camera.name not in available:
                found.append(str(unknown_name("camera", camera.name, available)))
            elif (camera.depth is not None) and available[camera.name].depth is None:
                found.append(f"camera {camera.name!r}: depth is required, but not offered.")
            elif camera.has_geometry and not available[camera.name].has_geometry:
                found.append(f"camera {camera.name!r}: geometry is required, but not offered.")
        return found

    def differences(self, other: "Contract") -> list[str]:
        """Describes in sentences why two contracts are not equal; empty if they are."""
        if self == other:
            return []
        names = self.embodiment, other.embodiment
        cameras = [
            f"camera {one.name!r}: {key} is {getattr(one, key)!r} and {getattr(another, key)!r}."
            for one, another in zip(self.cameras, other.cameras, strict=False)
            for key in asdict(one)
            if getattr(one, key) != getattr(another, key)
        ]
        return (
            self.incompatibilities(other)
            or [
                f"kinematics: {key} differ."
                for key, part in (self.kinematics or {}).items()
                if part != (other.kinematics or {}).get(key)
            ]
            or ([f"embodiment: {names[0]!r} and {names[1]!r}."] if names[0] != names[1] else [])
            or cameras
            or [f"There are {len(self.cameras)} and {len(other.cameras)} cameras."]
        )


def _brief(value: object) -> str:
    if isinstance(value, tuple):
        names = [getattr(entry, "name", entry) for entry in value]
        return f"{len(names)} ({', '.join(map(str, names[:4]))}{', ...' if len(names) > 4 else ''})"
    return repr(value)


_MOVING_PARTS = ("joints", "chains")  # What of a robot's record a policy depends on.

OPTIONAL_STEP_KEYS = ("reward", "stage", "sim/state")


@dataclass(frozen=True)
class _Expected:
    """Shape and type of one array."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    required: bool = True


def _camera_arrays(camera: Camera) -> Iterator[_Expected]:
    size = (camera.height, camera.width)
    yield _Expected(f"rgb/{camera.name}", (*size, 3), "uint8")
    yield _Expected(f"depth/{camera.name}", size, "uint16", required=camera.depth is not None)
    yield _Expected(f"time/{camera.name}", (), "float64")
    yield _Expected(f"intrinsics/{camera.name}", (3, 3), "float32", required=camera.has_geometry)
    yield _Expected(f"T_base_camera/{camera.name}", (4, 4), "float32", required=camera.has_geometry)


def _state_arrays(contract: Contract) -> Iterator[_Expected]:
    joints = (len(contract.joints),)
    yield _Expected("time", (), "float64")
    yield _Expected("joints/position", joints, "float32", required=bool(contract.joints))
    yield _Expected("joints/velocity", joints, "float32", required=False)
    yield _Expected("joints/effort", joints, "float32", required=False)
    for arm in contract.arms:
        yield _Expected(f"T_base_gripper/{arm}", (4, 4), "float32")


def check_observation(
    observation: Observation, contract: Contract, *, cameras: bool = True
) -> None:
    """Checks keys, shapes, types and finiteness of one observation, arrays without a time axis.

    Without `cameras` only the state is checked. Errors name the key and the allowed value.
    """
    expected = list(_state_arrays(contract))
    if cameras:
        expected += [entry for camera in contract.cameras for entry in _camera_arrays(camera)]
    for entry in expected:
        if entry.key in observation:
            _check(entry.key, observation[entry.key], entry.shape, entry.dtype)
        elif entry.required:
            raise unknown_name("observation key", entry.key, observation)


def observation_bytes(contract: Contract) -> int:
    """Returns the bytes of the arrays of a complete observation, with all optional ones."""
    arrays = list(_state_arrays(contract))
    arrays += [entry for camera in contract.cameras for entry in _camera_arrays(camera)]
    return sum(math.prod(entry.shape) * np.dtype(entry.dtype).itemsize for entry in arrays)


def check_action(action: Array, contract: Contract) -> None:
    """Checks that actions (..., A) have the dimensions of the contract and are finite."""
    if action.ndim < 1 or action.shape[-1] != len(contract.action):
        raise ValueError(
            f"An action has {len(contract.action)} dimensions (last axis); got shape "
            f"{action.shape}."
        )
    if not np.isfinite(action).all():
        bad = contract.action[int(np.argwhere(~np.isfinite(action))[0][-1])].name
        raise ValueError(f"The action is not finite at {bad!r}.")


def check_episode(arrays: EpisodeArrays, contract: Contract) -> None:
    """Checks a whole episode against the contract; errors name the key and the allowed value."""
    if "time" not in arrays or arrays["time"].ndim != 1 or not len(arrays["time"]):
        raise ValueError("An episode needs `time` of shape (T,) with at least one step.")
    steps = len(arrays["time"])
    for entry in _state_arrays(contract):
        _check_series(arrays, entry, (steps,))
    _check_series(arrays, _Expected("action", (len(contract.action),), "float32"), (steps,))
    for camera in contract.cameras:
        _check_camera_series(arrays, camera, steps)
    for key in OPTIONAL_STEP_KEYS:
        if key in arrays and len(arrays[key]) != steps:
            raise ValueError(f"{key} has {len(arrays[key])} steps, time has {steps}.")
    for key in arrays:
        if key.startswith(SERIES):
            _check_further(key, arrays[key], steps)
    _check_labels(arrays, contract, steps)
    if (np.diff(arrays["time"]) <= 0).any():
        raise ValueError(
            f"time does not increase at step {int(np.argmax(np.diff(arrays['time']) <= 0)) + 1}."
        )


def _check_labels(arrays: EpisodeArrays, contract: Contract, steps: int) -> None:
    if LABELLED_STEPS not in arrays and LABELS not in arrays:
        return
    for key in (LABELLED_STEPS, LABELS):
        if key not in arrays:
            raise unknown_name("episode key", key, arrays)
    labelled = arrays[LABELLED_STEPS]
    _check(LABELLED_STEPS, labelled, (len(labelled),), "int32")
    length = arrays[LABELS].shape[1] if arrays[LABELS].ndim == 3 else 1
    _check(LABELS, arrays[LABELS], (len(labelled), length, len(contract.action)), "float32")
    bounded = np.concatenate([[-1], labelled, [steps]])
    if (np.diff(bounded) <= 0).any():
        raise ValueError(
            f"{LABELLED_STEPS} is {labelled.tolist()}; allowed: rising steps from 0 to {steps - 1}."
        )


def _check_camera_series(arrays: EpisodeArrays, camera: Camera, steps: int) -> None:
    frames = len(arrays.get(f"rgb/{camera.name}", ()))
    if not frames:
        raise unknown_name("episode key", f"rgb/{camera.name}", arrays)
    for entry in _camera_arrays(camera):
        fixed = entry.key.startswith("intrinsics/") or (
            entry.key.startswith("T_base_camera/")
            and entry.key in arrays
            and arrays[entry.key].ndim == 2
        )
        _check_series(arrays, entry, () if fixed else (frames,))
    size = (camera.height, camera.width)
    segments = _Expected(f"segmentation/{camera.name}", size, "uint8", required=False)
    _check_series(arrays, segments, (frames,))
    key = f"frame/{camera.name}"
    _check_series(arrays, _Expected(key, (), "int32"), (steps,))
    if arrays[key].min() < 0 or arrays[key].max() >= frames:
        raise ValueError(
            f"{key} points at frames {arrays[key].min()} to {arrays[key].max()}; there are "
            f"{frames}."
        )


def _check_further(key: str, array: Array, steps: int) -> None:
    """Checks a further series: floats with one row per step."""
    if array.dtype not in (np.float32, np.float64):
        raise ValueError(f"{key} has type {array.dtype}; allowed: float32 and float64.")
    _check(key, array, (steps, *array.shape[1:]), array.dtype.name)


def _check_series(arrays: EpisodeArrays, entry: _Expected, leading: tuple[int, ...]) -> None:
    if entry.key in arrays:
        _check(entry.key, arrays[entry.key], (*leading, *entry.shape), entry.dtype)
    elif entry.required:
        raise unknown_name("episode key", entry.key, arrays)


def _check(key: str, array: Array, shape: tuple[int, ...], dtype: str) -> None:
    if array.dtype != np.dtype(dtype):
        raise ValueError(f"{key} has type {array.dtype}; allowed: {dtype}.")
    if array.shape != shape:
        raise ValueError(f"{key} has shape {array.shape}; allowed: {shape}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{key} is not finite at index {where}.")


KEY = "instruction"
NUMBER_KEY = "instruction_number"
NOTHING_SAID = 0
PER_STEP = "series/instruction_index"
"""Series (T,): the place of the instruction of each step in `INSTRUCTIONS`, where they change."""
INSTRUCTIONS = "instructions"
"""Attribute `extra` of an episode whose instruction changes: a list of its instructions."""


def instruction_array(text: str) -> NDArray[np.uint8]:
    """Returns the UTF-8 bytes (L,) of a text, the value of the key `instruction`."""
    return np.frombuffer(text.encode(), np.uint8)


def instruction_of(observation: Observation) -> str | None:
    """Returns the instruction of an observation, or None; raises ValueError if it is not UTF-8."""
    if KEY not in observation:
        return None
    array = np.asarray(observation[KEY])
    try:
        if array.ndim != 1 or array.dtype != np.uint8:
            raise ValueError(f"got shape {array.shape} of {array.dtype}")
        return array.tobytes().decode()
    except ValueError as error:  # UnicodeDecodeError is a ValueError.
        raise ValueError(
            f"{KEY} is not text ({error}); allowed: UTF-8 bytes, (L,) uint8."
        ) from error


def instruction_number(text: str) -> int:
    """Returns the number of a text in a batch: 63 bits of its SHA-256, or 0 for an empty text.

    Two of a million different texts have the same number with a probability of 1 in 18 million.
    """
    if not text:
        return NOTHING_SAID
    return max(1, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1)
