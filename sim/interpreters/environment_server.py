"""Serves one environment to Stringline, from an interpreter of its own.

This file runs in the interpreter of the environment: Python 3.8 or newer with NumPy, msgpack and
the environment, without Stringline. Stringline starts it, gives it one end of a local socket and a
file in memory for images, and ends it. Messages are msgpack maps with their length, four bytes,
before them; arrays are as in the protocol of policy servers (`policies/remote/protocol.py`):

    server: {"protocol": "stringline-environment/1", "python": text}                  at the start
    client: {"type": "open", "place": "module:function", "name": text or nil,
             "cameras": list or nil, "size": [rows, columns]}
    server: {"type": "opened", "contract": {...}, "instruction": text, "stages": [...],
             "fixed": [cameras that do not move], "expert": true or false, "versions": {...},
             "arrays": {key: [offset, dtype, shape]}, "bytes": number}   where images will be
    client: {"type": "begin", "seed": number}                                        an episode
    client: {"type": "step", "action": (A,)}                                 one control period
    server: {"type": "state", "state": {key: array}, "success": ..., "ended": ...}    for both
    client: {"type": "look"}
    server: {"type": "seen"}                                        images are in the file now
    client: {"type": "expert", "seed": number}
    server: {"type": "expert"}                              the expert begins; may vary by the seed
    client: {"type": "act"}
    server: {"type": "action", "action": (A,)}                        the expert's next action
    server: {"type": "error", "kind": "refused" | "failed", "message": text}       then it ends

`function` returns a gymnasium environment, or a mapping with `env` and what `GymnasiumWorld` cannot
know; with `name` it is called with that name.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

PROTOCOL = "stringline-environment/1"
FAR_M = 65.535  # The largest depth of 16 bits; beyond it there is no return.
DEPTH_UNIT_M = 0.001
REFUSED = "refused"
FAILED = "failed"


class RefusedError(Exception):
    """A setting that the environment cannot have; the message is for the user.

    A module of an environment, which cannot import this one, defines a class of the same name.
    """


class GymnasiumWorld:
    """A gymnasium environment with a contract.

    Images are those of its observations (arrays (H, W, 3) of uint8 in a dictionary) or of
    `render()`; of a MuJoCo environment they are rendered here, at any size, with depth and geometry
    and without shadows, which software renders slowly.

    Args:
        cameras: Names of the cameras; if None, all.
        size: Rows and columns of the images.
        env: The gymnasium environment.
        embodiment: Name of the robot; if None, that of the environment's class.
        instruction: Instruction of the task.
        control_hz: Actions per second; if None, `render_fps` of its metadata.
        base_frame: Description of the base frame.
        joints: Names of the entries of `joints/position`; if None, one for each number of its
            observation that is no image.
        arms: Names of the arms that have a `T_base_gripper/<arm>`.
        action: Dimensions of the action, each a mapping as in Stringline's contract; if None, one
            for each of the action space, without a known unit.
        state: Returns the state by the contract's keys from the observation; if None,
            `joints/position` has the numbers of the observation.
        command: Returns the environment's action for one of the contract; if None, the same.
        success: Returns the success from `info`; if None, its `is_success` or `success`.
        expert: Returns for a seed the expert of an episode: a function from the observation to an
            action (A,) of the contract.
        seed: Begins the episode of a seed and returns its observation; if None, `env.reset`.
        mujoco: Returns model and data of MuJoCo; if None, they are found in the environment.
        T_base_world: (4, 4), from the environment's frame to the base frame.
        packages: Packages whose versions decide on episodes, besides NumPy, gymnasium and MuJoCo.
    """

    def __init__(
        self,
        cameras: Sequence[str] | None,
        size: tuple[int, int],
        *,
        env: Any,
        embodiment: str | None = None,
        instruction: str | None = None,
        control_hz: float | None = None,
        base_frame: str = "the environment's own frame",
        joints: Sequence[str] | None = None,
        arms: Sequence[str] = (),
        action: Sequence[Mapping[str, Any]] | None = None,
        state: Callable[[Any], Mapping[str, Any]] | None = None,
        command: Callable[[Any], Any] | None = None,
        success: Callable[[Mapping[str, Any]], bool] | None = None,
        expert: Callable[[int], Callable[[Any], Any]] | None = None,
        seed: Callable[[int], Any] | None = None,
        mujoco: Callable[[], tuple[Any, Any]] | None = None,
        T_base_world: Any = None,
        packages: Sequence[str] = (),
    ) -> None:
        self.env = env
        self._state = state or self._numbers
        self._command = command or self._as_it_is
        self._success = success or _success
        self._make_expert = expert
        self._seed = seed or (lambda number: env.reset(seed=number)[0])
        self._expert: Callable[[Any], Any] | None = None
        self._mujoco = mujoco or _mujoco_of(env)
        self._packages = packages
        self.observation = self._seed(0)
        images = _images(self.observation)
        self.views: MujocoViews | ImageViews = (
            ImageViews(self, cameras, size, list(images))
            if self._mujoco is None or (images and mujoco is None)
            else MujocoViews(self._mujoco, cameras, size, T_base_world)
        )
        named = type(getattr(env, "unwrapped", env)).__name__
        state_now = self.state()
        self.contract = {
            "embodiment": embodiment or named,
            "base_frame": base_frame,
            "control_hz": float(control_hz or self._rate()),
            "cameras": self.views.described(),
            "joints": list(self._joints(state_now) if joints is None else joints),
            "arms": list(arms),
            "action": [dict(each) for each in action or self._dimensions()],
        }
        self.instruction = instruction or named

    @property
    def has_expert(self) -> bool:
        """Whether there is an expert."""
        return self._make_expert is not None

    def versions(self) -> dict[str, str]:
        """Returns the versions of the packages on which episodes depend."""
        from importlib import metadata

        found = {}
        for package in ("numpy", "gymnasium", "mujoco", *self._packages):
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[package] = metadata.version(package)
        return found

    def begin(self, seed: int) -> dict[str, Any]:
        """Begins the episode of a seed and returns the answer."""
        self.observation = self._seed(seed)
        return self._answer(success=False, ended=False)

    def step(self, action: Any) -> dict[str, Any]:
        """Applies an action (A,) of the contract for one control period; returns the answer."""
        self.observation, _, terminated, truncated, info = self.env.step(self._command(action))
        success = bool(self._success(info))
        return self._answer(success=success, ended=bool(terminated or truncated))

    def state(self) -> dict[str, Any]:
        """Returns the state by the contract's keys, and `sim/state` of MuJoCo."""
        found = {
            key: np.asarray(value, dtype=np.float32)
            for key, value in self._state(self.observation).items()
        }
        if self._mujoco is not None:
            _, data = self._mujoco()
            found["sim/state"] = np.concatenate([data.qpos, data.qvel, data.act])
        return found

    def begin_expert(self, seed: int) -> None:
        """Begins an episode of the expert."""
        if self._make_expert is None:
            raise RefusedError("The environment has no expert.")
        self._expert = self._make_expert(seed)

    def act(self) -> Any:
        """Returns the expert's next action (A,)."""
        if self._expert is None:
            raise RefusedError("The expert has not begun.")
        return np.asarray(self._expert(self.observation), dtype=np.float64)

    def close(self) -> None:
        """Closes the environment."""
        self.views.close()
        self.env.close()

    def _answer(self, *, success: bool, ended: bool) -> dict[str, Any]:
        return {"type": "state", "state": self.state(), "success": success, "ended": ended}

    def _rate(self) -> float:
        rate = (getattr(self.env, "metadata", None) or {}).get("render_fps")
        if not rate:
            raise RefusedError(
                "The environment does not say how many actions it takes per second; give "
                "control_hz, or render_fps in its metadata."
            )
        return float(rate)

    def _numbers(self, observation: Any) -> dict[str, Any]:
        parts = [np.ravel(each) for _, each in _leaves(observation) if not _is_image(each)]
        joined = np.concatenate(parts) if parts else np.zeros(0)
        return {"joints/position": joined} if joined.size else {}

    def _joints(self, state: Mapping[str, Any]) -> list[str]:
        return [f"state_{index}" for index in range(len(state.get("joints/position", ())))]

    def _dimensions(self) -> list[dict[str, Any]]:
        space = self.env.action_space
        if len(getattr(space, "shape", None) or ()) != 1 or space.dtype.kind != "f":
            raise RefusedError(f"The action space is {space}; allowed: a Box of one axis.")
        common = {"arm": "arm", "kind": "joint", "mode": "absolute", "unit": "1", "frame": "joint"}
        return [{"name": f"action_{index}", **common} for index in range(space.shape[0])]

    def _as_it_is(self, action: Any) -> Any:
        return np.asarray(action, dtype=self.env.action_space.dtype)


def _success(info: Mapping[str, Any]) -> bool:
    return bool(info.get("is_success", info.get("success", False)))


def _leaves(observation: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the arrays of nested dictionaries by their last keys."""
    if isinstance(observation, Mapping):
        for key, value in observation.items():
            yield from _leaves(value, str(key))
    else:
        yield name or "render", np.asarray(observation)


def _is_image(array: Any) -> bool:
    return bool(array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] == 3)


def _images(observation: Any) -> dict[str, Any]:
    return {name: each for name, each in _leaves(observation) if _is_image(each)}


def _mujoco_of(env: Any) -> Callable[[], tuple[Any, Any]] | None:
    """Returns a function to model and data of a gymnasium environment of MuJoCo, if it is one."""
    if importlib.util.find_spec("mujoco") is None:
        return None
    inner = getattr(env, "unwrapped", env)
    if "mujoco" not in type(getattr(inner, "model", None)).__module__:
        return None
    return lambda: (inner.model, inner.data)


class ImageViews:
    """Images of an environment's observations, or of its `render()`, without geometry."""

    def __init__(
        self,
        world: GymnasiumWorld,
        cameras: Sequence[str] | None,
        size: tuple[int, int],
        names: Sequence[str],
    ) -> None:
        self._world = world
        self._rendered = not names
        known = list(names) or ["render"]
        self.names = list(known if cameras is None else cameras)
        _check_names(self.names, known)
        self._size = size
        for name, image in self._all().items():
            if name in self.names and image.shape[:2] != tuple(size):
                got = "x".join(map(str, size))
                rows, columns = image.shape[:2]
                raise RefusedError(
                    f"The image size is {got}; the images {name} of this environment have "
                    f"{rows}x{columns}: add task.image_size=[{rows},{columns}]."
                )

    def described(self) -> list[dict[str, Any]]:
        """Returns the cameras of the contract."""
        return [_camera(name, self._size, None) for name in self.names]

    @property
    def fixed(self) -> list[str]:
        """Names of the cameras that do not move."""
        return []

    def look(self) -> dict[str, Any]:
        """Returns the images by key."""
        found = self._all()
        return {f"rgb/{name}": found[name] for name in self.names}

    def close(self) -> None:
        """Does nothing: the environment closes its own renderer."""

    def _all(self) -> dict[str, Any]:
        if not self._rendered:
            return _images(self._world.observation)
        image = self._world.env.render()
        if image is None or not _is_image(np.asarray(image)):
            raise RefusedError(
                "The environment has no images: neither arrays (H, W, 3) of uint8 in its "
                "observations, nor render_mode='rgb_array', nor a MuJoCo model."
            )
        return {"render": np.asarray(image)}


class MujocoViews:
    """RGB-D images of the cameras of a MuJoCo model with their geometry.

    Args:
        mujoco: Returns model and data.
        cameras: Names of cameras of the model; if None, all.
        size: Rows and columns.
        T_base_world: (4, 4), from the environment's frame to the base frame; None: the same.
    """

    def __init__(
        self,
        mujoco: Callable[[], tuple[Any, Any]],
        cameras: Sequence[str] | None,
        size: tuple[int, int],
        T_base_world: Any = None,
    ) -> None:
        import mujoco as library

        self._library: Any = library
        self._mujoco = mujoco
        self._size = size
        self._T_base_world = np.eye(4) if T_base_world is None else np.asarray(T_base_world)
        model, _ = mujoco()
        known = [model.camera(index).name for index in range(model.ncam)]
        self.names = [name for name in known if name] if cameras is None else list(cameras)
        _check_names(self.names, known)
        self._model: Any = None
        self._graphics: Any = None
        self._context: Any = None
        self._scene: Any = None
        self._camera = library.MjvCamera()
        self._camera.type = library.mjtCamera.mjCAMERA_FIXED

    def described(self) -> list[dict[str, Any]]:
        """Returns the cameras of the contract."""
        return [_camera(name, self._size, "simulated") for name in self.names]

    @property
    def fixed(self) -> list[str]:
        """Names of the cameras on bodies that do not move."""
        model, _ = self._mujoco()
        return [
            name
            for name in self.names
            if model.body_weldid[model.camera(name).bodyid[0]] == 0
            and model.camera(name).mode[0] == self._library.mjtCamLight.mjCAMLIGHT_FIXED
        ]

    def look(self) -> dict[str, Any]:
        """Returns images and geometry by key."""
        model, data = self._mujoco()
        if not self.names:
            return {}
        if model is not self._model:
            self._use(model)
        self._graphics.make_current()
        library = self._library
        free = library.MjvCamera()
        everything = library.mjtCatBit.mjCAT_ALL
        option = library.MjvOption()
        library.mjv_updateScene(model, data, option, None, free, everything, self._scene)
        found: dict[str, Any] = {}
        for name in self.names:
            number = model.camera(name).id
            found[f"rgb/{name}"], metres = self._image(data, number)
            counts = np.where(metres < FAR_M, np.rint(metres / DEPTH_UNIT_M), 0.0)
            found[f"depth/{name}"] = counts.astype(np.uint16)
            found[f"intrinsics/{name}"] = self._intrinsics(float(model.cam_fovy[number]))
            T_world_camera = np.eye(4)
            # MuJoCo's cameras look along -z, with y up.
            axes = data.cam_xmat[number].reshape(3, 3) * np.array([1.0, -1.0, -1.0])
            T_world_camera[:3, :3] = axes
            T_world_camera[:3, 3] = data.cam_xpos[number]
            T_base_camera = self._T_base_world @ T_world_camera
            found[f"T_base_camera/{name}"] = T_base_camera.astype(np.float32)
        return found

    def close(self) -> None:
        """Frees the graphics."""
        if self._graphics is not None:
            self._graphics.make_current()
            self._context.free()
            self._graphics.free()
        self._graphics = self._model = None

    def _use(self, model: Any) -> None:
        self.close()
        library = self._library
        rows, columns = self._size
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        visual = model.vis.global_
        visual.offwidth = max(visual.offwidth, columns)
        visual.offheight = max(visual.offheight, rows)
        model.cam_sensorsize[:] = 0.0  # Otherwise its aspect ratio stretches the image.
        self._graphics = _graphics(library)(columns, rows)
        self._graphics.make_current()
        self._context = library.MjrContext(model, library.mjtFontScale.mjFONTSCALE_100)
        library.mjr_setBuffer(library.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._context.readDepthMap = library.mjtDepthMap.mjDEPTH_ZEROFAR
        self._scene = library.MjvScene(model, maxgeom=model.ngeom + 1000)
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            self._scene.flags[getattr(library.mjtRndFlag, flag)] = 0
        self._model = model

    def _image(self, data: Any, number: int) -> tuple[Any, Any]:
        """Returns colours (H, W, 3) and metres (H, W) of one pass over the scene."""
        library = self._library
        rows, columns = self._size
        self._camera.fixedcamid = number
        library.mjv_updateCamera(self._model, data, self._camera, self._scene)
        place = library.MjrRect(0, 0, columns, rows)
        library.mjr_render(place, self._scene, self._context)
        rgb = np.empty((rows, columns, 3), np.uint8)
        depth = np.empty((rows, columns), np.float32)
        library.mjr_readPixels(rgb, depth, place, self._context)
        extent = self._model.stat.extent
        near = self._model.vis.map.znear * extent
        far = self._model.vis.map.zfar * extent
        # The buffer has 1 at the near plane and 0 at the far one, linear in 1 / metres.
        metres = far * near / (depth[::-1].astype(np.float64) * (far - near) + near)
        return rgb[::-1], np.where(depth[::-1] > 0, metres, np.inf)

    def _intrinsics(self, fovy_deg: float) -> Any:
        rows, columns = self._size
        focal = rows / 2 / np.tan(np.radians(fovy_deg) / 2)
        values = [[focal, 0.0, columns / 2], [0.0, focal, rows / 2], [0.0, 0.0, 1.0]]
        return np.array(values, dtype=np.float32)


def _graphics(library: Any) -> Any:
    """Returns MuJoCo's class of graphics contexts: EGL, if nothing else is chosen or there."""
    if os.environ.get("MUJOCO_GL") or os.environ.get("DISPLAY") or sys.platform != "linux":
        return library.GLContext
    return importlib.import_module("mujoco.egl").GLContext


def _camera(name: str, size: tuple[int, int], depth: str | None) -> dict[str, Any]:
    pixels = {"height": size[0], "width": size[1]}
    return {"name": name, **pixels, "depth": depth, "has_geometry": depth is not None}


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise RefusedError(f"There is no camera {name!r}. Allowed: {allowed}.")


class Host:
    """Answers the messages of one client.

    Args:
        memory: Returns the memory for the images, given its size in bytes.

    Attributes:
        frame: The arrays of images by key, as the last `look` left them.
    """

    def __init__(self, memory: Callable[[int], Any]) -> None:
        self._open_memory = memory
        self._world: GymnasiumWorld | None = None
        self.frame: dict[str, Any] = {}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answers one message; raises the environment's error, or a `RefusedError`."""
        kind = message["type"]
        if kind == "open":
            return self._open(message)
        world = self._world
        if world is None:
            raise RefusedError("The environment is not open.")
        if kind == "begin":
            return world.begin(message["seed"])
        if kind == "step":
            return world.step(message["action"])
        if kind == "look":
            self._write(world.views.look())
            return {"type": "seen"}
        if kind == "expert":
            world.begin_expert(message["seed"])
            return {"type": "expert"}
        if kind == "act":
            return {"type": "action", "action": world.act()}
        raise RefusedError(f"There is no message {kind!r} in {PROTOCOL}.")

    def close(self) -> None:
        """Closes the environment."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def _open(self, message: Mapping[str, Any]) -> dict[str, Any]:
        name = message.get("name")
        try:
            function = _function(message["place"])
            made = function() if name is None else function(name)
        except ModuleNotFoundError as error:
            traceback.print_exc()
            missing = (error.name or "").partition(".")[0]
            raise RefusedError(
                f"{sys.executable} has no module {missing!r}. Run: {sys.executable} -m pip install "
                f"{missing}; a module of yours must be in the current folder."
            ) from error
        described = dict(made) if isinstance(made, Mapping) else {"env": made}
        if "env" not in described:
            raise RefusedError(f"{message['place']} returned a mapping without 'env'.")
        rows, columns = message["size"]
        try:
            world = GymnasiumWorld(message["cameras"], (rows, columns), **described)
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                raise
            raise RefusedError(f"{message['place']} returned a mapping: {error}.") from error
        self._world = world
        arrays, size = _places(world.views.look())
        memory = self._open_memory(size)
        self.frame = {
            key: np.ndarray(tuple(shape), dtype, buffer=memory, offset=offset)
            for key, (offset, dtype, shape) in arrays.items()
        }
        return {
            "type": "opened",
            "contract": world.contract,
            "instruction": world.instruction,
            "stages": ["start", "success"],
            "fixed": world.views.fixed,
            "expert": world.has_expert,
            "versions": world.versions(),
            "arrays": arrays,
            "bytes": size,
        }

    def _write(self, found: Mapping[str, Any]) -> None:
        for key, place in self.frame.items():
            array = np.asarray(found[key])
            if array.shape != place.shape or array.dtype != place.dtype:
                raise ValueError(
                    f"{key} has shape {array.shape} and type {array.dtype}; it began with "
                    f"{place.shape} and {place.dtype}."
                )
            place[...] = array


def _places(found: Mapping[str, Any]) -> tuple[dict[str, list[Any]], int]:
    """Returns offset, type and shape of each array in the file, and the size of the file."""
    places: dict[str, list[Any]] = {}
    size = 0
    for key, value in found.items():
        array = np.asarray(value)
        places[key] = [size, array.dtype.str, list(array.shape)]
        size += -(-array.nbytes // 64) * 64
    return places, max(size, 1)


def _function(place: str) -> Callable[..., Any]:
    """Returns the function `module:function`; a module may be a file of Python."""
    module, _, name = place.rpartition(":")
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location("stringline_environment", module)
        assert spec is not None
        assert spec.loader is not None
        found: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    else:
        found = importlib.import_module(module)
    function = getattr(found, name, None)
    if not callable(function):
        names = [key for key, value in vars(found).items() if callable(value) and key[0] != "_"]
        raise RefusedError(
            f"There is no function {name!r} in {module}. Allowed: {', '.join(sorted(names))}."
        )
    return function  # type: ignore[no-any-return]


def pack(value: object) -> bytes:
    """Returns the bytes of nested maps, lists, text, numbers and arrays."""
    import msgpack

    return bytes(msgpack.packb(value, default=_plain))


def unpack(data: bytes) -> Any:
    """Returns the argument of `pack`."""
    import msgpack

    return msgpack.unpackb(data, object_hook=_array, strict_map_key=False)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return {
            b"__ndarray__": True,
            b"data": value.tobytes(),
            b"dtype": value.dtype.str,
            b"shape": value.shape,
        }
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"an object of {type(value).__name__}")


def _array(found: dict[Any, Any]) -> Any:
    if b"__ndarray__" in found:
        return np.frombuffer(found[b"data"], found[b"dtype"]).reshape(found[b"shape"])
    return found


def send(connection: socket.socket, message: object) -> None:
    """Sends one message."""
    data = pack(message)
    connection.sendall(struct.pack(">I", len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Returns the next message; an `EOFError` means that the client has ended."""
    (size,) = struct.unpack(">I", _read(connection, 4))
    return unpack(_read(connection, size))


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def serve(connection: socket.socket, memory: int) -> None:
    """Answers messages until the client ends, or the environment fails."""

    def mapped(size: int) -> Any:
        os.ftruncate(memory, size)
        return mmap.mmap(memory, size)

    host = Host(mapped)
    send(connection, {"protocol": PROTOCOL, "python": sys.version.split()[0]})
    while True:
        message = receive(connection)
        try:
            answer = host.answer(message)
        except Exception as error:
            if type(error).__name__ == RefusedError.__name__:
                send(connection, {"type": "error", "kind": REFUSED, "message": str(error)})
                return
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            send(connection, {"type": "error", "kind": FAILED, "message": text})
            return
        send(connection, answer)


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def main() -> None:
    """Serves on the descriptors of the command line: a socket, a file, and a lifeline.

    The process ends when the other end of the lifeline is closed, also while the environment hangs.
    SIGUSR1 prints where it hangs.
    """
    descriptors = [int(text) for text in sys.argv[1:4]]
    sys.path[0] = ""  # The current folder, as for `python -m`, in place of this file's.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; Stringline ends this.
    threading.Thread(target=_end_with, args=[descriptors[2]], daemon=True).start()
    if importlib.util.find_spec("msgpack") is None:
        sys.exit(f"{sys.executable} has no msgpack. Run: {sys.executable} -m pip install msgpack")
    with (
        socket.socket(fileno=descriptors[0]) as connection,
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
    ):
        serve(connection, descriptors[1])


if __name__ == "__main__":
    main()
