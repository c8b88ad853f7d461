"""What an observation, an action and an episode are: keys, shapes, units and frames, checked at the border.

Simulation, teleoperation, importers and the hardware bridge all produce these keys, and policies consume them.
An observation is a flat mapping from key to array, an episode the same with time as the leading axis:

    key                          one observation      an episode          unit, frame
    rgb/<camera>                 (H, W, 3) uint8      (F, H, W, 3)        sRGB, at the camera's own rate
    depth/<camera>               (H, W) uint16        (F, H, W)           `depth_unit_m`, along the optical axis; 0 = no return
    frame/<camera>               -                    (T,) int32          which of the F frames step t saw
    time/<camera>                () float64           (F,)                s, capture times
    intrinsics/<camera>          (3, 3) float32       (3, 3)              pixels of the stored resolution
    T_base_camera/<camera>       (4, 4) float32       (4, 4) or (F, 4, 4) camera (x right, y down, z forward) to base
    joints/position              (J,) float32         (T, J)              rad; grippers 0 (closed) to 1 (open)
    joints/velocity              (J,) float32         (T, J)              rad/s; grippers 1/s
    joints/effort                (J,) float32         (T, J)              Nm; grippers N
    T_base_gripper/<arm>         (4, 4) float32       (T, 4, 4)           gripper (TCP) to base
    action                       -                    (T, A) float32      each dimension described by the contract
    time                         () float64           (T,)                s, one monotonic clock
    reward, stage, sim/state     -                    (T, ...)            optional

Pixel (0, 0) is the upper left one and its centre lies at (0.5, 0.5). `T_ab` takes coordinates in b to a.
This module imports without torch and without MuJoCo.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.names import unknown_name

Array = NDArray[Any]
Observation = Mapping[str, Array]
EpisodeArrays = Mapping[str, Array]

ActionKind = Literal["joint", "gripper", "position", "rotation"]
ActionMode = Literal["absolute", "relative"]
DepthSource = Literal["measured", "simulated", "estimated"]

OPTIONAL_STEP_KEYS = ("reward", "stage", "sim/state")


@dataclass(frozen=True)
class Camera:
    """One camera of the contract.

    Attributes:
        name: The part of the key after `rgb/`.
        height: Rows of the stored pictures.
        width: Columns of the stored pictures.
        depth: Where its depth comes from, or None when it has none.
        depth_unit_m: Metres per count of the stored depth, 0.001 or finer.
        has_geometry: Whether intrinsics and `T_base_camera` are known.
        distortion_model: `none`, or the name of the model that `distortion` belongs to.
        distortion: Coefficients of that model.
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
        """Refuses what no reader could interpret."""
        if self.height < 1 or self.width < 1:
            raise ValueError(f"Camera {self.name!r} has size {self.height}x{self.width}; both must be positive.")
        if self.depth is not None and not 0 < self.depth_unit_m <= 0.001:
            raise ValueError(
                f"Camera {self.name!r}: depth_unit_m is {self.depth_unit_m}; allowed: above 0 and at most 0.001 m."
            )


@dataclass(frozen=True)
class ActionDimension:
    """One number of an action.

    Attributes:
        name: Unique, such as `left/waist`.
        arm: The arm it moves.
        kind: What it commands.
        mode: Absolute target, or relative to the measured state.
        unit: `rad`, `m`, `opening` (gripper, 0 closed to 1 open).
        frame: `joint`, or the frame that a Cartesian dimension is expressed in.
    """

    name: str
    arm: str
    kind: ActionKind
    mode: ActionMode = "absolute"
    unit: str = "rad"
    frame: str = "joint"


@dataclass(frozen=True)
class Contract:
    """What every observation and action of a data set, task or robot looks like.

    Attributes:
        embodiment: Name of the body, such as `aloha`.
        base_frame: The frame that every `T_base_*` refers to, in words.
        control_hz: Actions per second.
        cameras: Cameras in a fixed order.
        joints: Names of the entries of `joints/*`; empty when the data has no joint state.
        arms: Names of the arms that have a `T_base_gripper/<arm>`.
        action: One entry per dimension of `action`.
    """

    embodiment: str
    base_frame: str
    control_hz: float
    cameras: tuple[Camera, ...]
    joints: tuple[str, ...]
    arms: tuple[str, ...]
    action: tuple[ActionDimension, ...]

    def __post_init__(self) -> None:
        """Refuses contracts that describe nothing or say one thing twice."""
        if not self.control_hz > 0:
            raise ValueError(f"control_hz is {self.control_hz}; it must be positive.")
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
        """Returns the camera of that name.

        Raises:
            ValueError: It does not exist; the message names the nearest ones.
        """
        for camera in self.cameras:
            if camera.name == name:
                return camera
        raise unknown_name("camera", name, [camera.name for camera in self.cameras])

    def with_cameras(self, *cameras: Camera) -> Self:
        """Returns the same contract over other cameras."""
        return type(self)(self.embodiment, self.base_frame, self.control_hz, cameras, self.joints, self.arms, self.action)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists, strings and numbers, fit for JSON and YAML."""
        plain = asdict(self)
        plain["cameras"] = [dict(camera, distortion=list(camera["distortion"])) for camera in plain["cameras"]]
        return plain | {key: list(plain[key]) for key in ("joints", "arms", "action")}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds the contract that `to_dict` wrote.

        Raises:
            ValueError: A field is missing or unknown.
        """
        try:
            cameras = tuple(
                Camera(**{**camera, "distortion": tuple(camera.get("distortion", ()))}) for camera in plain["cameras"]
            )
            action = tuple(ActionDimension(**dimension) for dimension in plain["action"])
            rest = {key: value for key, value in plain.items() if key not in ("cameras", "action")}
            rest |= {key: tuple(rest[key]) for key in ("joints", "arms")}
            return cls(cameras=cameras, action=action, **rest)
        except (KeyError, TypeError) as error:
            raise ValueError(f"This is no contract: {error}.") from error

    def misfits(self, offered: "Contract") -> list[str]:
        """Says why something that was made for this contract cannot run on what `offered` describes.

        Cameras beyond those asked for are welcome; everything else must agree.

        Returns:
            One sentence per disagreement, none when it fits.
        """
        found = []
        for field in ("embodiment", "base_frame", "control_hz", "joints", "arms", "action"):
            asked, got = getattr(self, field), getattr(offered, field)
            if asked != got:
                found.append(f"{field}: {_brief(asked)} is asked for, {_brief(got)} is offered.")
        available = {camera.name: camera for camera in offered.cameras}
        for camera in self.cameras:
            if camera.name not in available:
                found.append(str(unknown_name("camera", camera.name, available)))
            elif (camera.depth is not None) and available[camera.name].depth is None:
                found.append(f"camera {camera.name!r}: depth is asked for, none is offered.")
            elif camera.has_geometry and not available[camera.name].has_geometry:
                found.append(f"camera {camera.name!r}: its geometry is asked for, none is offered.")
        return found


def _brief(value: object) -> str:
    if isinstance(value, tuple):
        names = [getattr(entry, "name", entry) for entry in value]
        return f"{len(names)} ({', '.join(map(str, names[:4]))}{', ...' if len(names) > 4 else ''})"
    return repr(value)


@dataclass(frozen=True)
class _Expected:
    """Shape (None: any length) and type of one array."""

    key: str
    shape: tuple[int | None, ...]
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


def validate_observation(observation: Observation, contract: Contract, *, cameras: bool = True) -> None:
    """Checks one observation against the contract.

    Args:
        observation: Arrays by key, without a time axis.
        contract: What they must fit.
        cameras: False where only the state is looked at.

    Raises:
        ValueError: A key is missing, or has another shape or type, or is not finite.
    """
    expected = list(_state_arrays(contract))
    if cameras:
        expected += [entry for camera in contract.cameras for entry in _camera_arrays(camera)]
    for entry in expected:
        if entry.key in observation:
            _check(entry.key, observation[entry.key], entry.shape, entry.dtype)
        elif entry.required:
            raise unknown_name("observation key", entry.key, observation)


def validate_action(action: Array, contract: Contract) -> None:
    """Checks one action or a sequence of them, (..., A), against the contract.

    Raises:
        ValueError: The last axis has another length, or a value is not finite.
    """
    if action.ndim < 1 or action.shape[-1] != len(contract.action):
        raise ValueError(f"An action has {len(contract.action)} dimensions (last axis); got shape {action.shape}.")
    if not np.isfinite(action).all():
        bad = contract.action[int(np.argwhere(~np.isfinite(action))[0][-1])].name
        raise ValueError(f"The action is not finite at {bad!r}.")


def validate_episode(arrays: EpisodeArrays, contract: Contract) -> None:
    """Checks a whole episode against the contract.

    Raises:
        ValueError: With the key, what was got and what is allowed.
    """
    if "time" not in arrays or arrays["time"].ndim != 1 or not len(arrays["time"]):
        raise ValueError("An episode needs `time` of shape (T,) with at least one step.")
    steps = len(arrays["time"])
    for entry in _state_arrays(contract):
        _check_series(arrays, entry, (steps,))
    _check_series(arrays, _Expected("action", (len(contract.action),), "float32"), (steps,))
    for camera in contract.cameras:
        _validate_camera_series(arrays, camera, steps)
    for key in OPTIONAL_STEP_KEYS:
        if key in arrays and len(arrays[key]) != steps:
            raise ValueError(f"{key} has {len(arrays[key])} steps, time has {steps}.")
    if (np.diff(arrays["time"]) <= 0).any():
        raise ValueError(f"time does not grow at step {int(np.argmax(np.diff(arrays['time']) <= 0)) + 1}.")


def _validate_camera_series(arrays: EpisodeArrays, camera: Camera, steps: int) -> None:
    frames = len(arrays.get(f"rgb/{camera.name}", ()))
    if not frames:
        raise unknown_name("episode key", f"rgb/{camera.name}", arrays)
    for entry in _camera_arrays(camera):
        fixed = entry.key.startswith("intrinsics/") or (
            entry.key.startswith("T_base_camera/") and entry.key in arrays and arrays[entry.key].ndim == 2
        )
        _check_series(arrays, entry, () if fixed else (frames,))
    key = f"frame/{camera.name}"
    _check_series(arrays, _Expected(key, (), "int32"), (steps,))
    if arrays[key].min() < 0 or arrays[key].max() >= frames:
        raise ValueError(f"{key} points at frames {arrays[key].min()} to {arrays[key].max()}; there are {frames}.")


def _check_series(arrays: EpisodeArrays, entry: _Expected, leading: tuple[int, ...]) -> None:
    if entry.key in arrays:
        _check(entry.key, arrays[entry.key], (*leading, *entry.shape), entry.dtype)
    elif entry.required:
        raise unknown_name("episode key", entry.key, arrays)


def _check(key: str, array: Array, shape: tuple[int | None, ...], dtype: str) -> None:
    if array.dtype != np.dtype(dtype):
        raise ValueError(f"{key} has type {array.dtype}; allowed: {dtype}.")
    if len(array.shape) != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{key} has shape {tuple(array.shape)}; allowed: {shape}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{key} is not finite at index {where}.")
