"""Models of rooms for MuJoCo, and their images: colours, depth, and the object of each pixel.

A model has drawn surfaces and lights.
"""

import atexit
import colorsys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.sim.looks.families import HELD_OUT, SEEN, Family
from stringline.sim.rendering.opengl_context import (
    FORKED,
    GraphicsContext,
    drawing_context,
    forked,
    open_graphics,
)
from stringline.sim.scenes.assets import TEXTURES, Mesh, Solid, Vectors, turned
from stringline.sim.scenes.rooms import PlacedAsset, Room

SIDE = 64  # Pixels of the textures of assets.
ROOM_SIDE = 128
SEEDS = 4  # Drawings of each texture.
WALL_M = 0.02
_FORMS = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "ellipsoid": mujoco.mjtGeom.mjGEOM_ELLIPSOID,
    "mesh": mujoco.mjtGeom.mjGEOM_MESH,
}
_RGB = mujoco.mjtTextureRole.mjTEXROLE_RGB


@dataclass(frozen=True, eq=False)
class RoomModel:
    """A compiled room.

    Attributes:
        owners: (G,) for each geom 1 + the index of its asset; 0 for the room itself.
    """

    model: mujoco.MjModel
    data: mujoco.MjData
    owners: NDArray[np.int32]


class RoomBuilder:
    """Collects floor, walls, lights and assets of one room.

    `largest` are rows and columns of the largest image.
    """

    def __init__(self, rng: np.random.Generator, largest: tuple[int, int]) -> None:
        self._rng = rng
        self._spec = mujoco.MjSpec()
        self._owners: list[int] = []
        self._owners_of_bodies: list[tuple[int, list[int]]] = []
        self._textures: set[str] = set()
        self._meshes: dict[int, str] = {}
        visual = self._spec.visual
        visual.quality.shadowsize = 0
        visual.quality.offsamples = 0
        visual.quality.numslices = 16
        visual.quality.numstacks = 10
        visual.quality.numquads = 2
        visual.global_.offheight, visual.global_.offwidth = largest

    def add_room(self, room: Room) -> None:
        """Adds floor, ceiling, walls and lights."""
        x, y = room.half
        half = SEEN if self._rng.uniform() < 0.5 else HELD_OUT
        self._surface("floor", half.floors, (x, y), (0, 0, -WALL_M), np.eye(3))
        top = np.diag([1.0, -1.0, -1.0])
        self._surface("ceiling", (), (x, y), (0, 0, room.height + WALL_M), top)
        walls = half.walls
        walls = (walls[self._rng.integers(len(walls))],)
        for number in range(4):
            turn = turned(number * np.pi / 2)
            along, away = (x, y) if number % 2 == 0 else (y, x)
            # Its columns: along the wall, up, and into the room.
            axes = turn @ np.array([[1.0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]])
            place = turn @ (0, away + WALL_M, room.height / 2)
            self._surface(f"wall{number}", walls, (along, room.height / 2), place, axes)
        self._light()

    def add(self, placed: PlacedAsset, number: int) -> None:
        """Adds an asset that does not move, as object `number`."""
        turn = turned(placed.yaw)
        for solid in placed.asset.solids:
            place = placed.position + turn @ solid.centre
            self._solid(self._spec.worldbody, solid, place, turn @ solid.rotation)
            self._owners.append(number + 1)

    def add_moving(self, solids: Sequence[Solid], number: int, name: str) -> None:
        """Adds solids of object `number` as a body whose pose is set per frame."""
        body = self._spec.worldbody.add_body(name=name, mocap=True)
        for solid in solids:
            self._solid(body, solid, solid.centre, solid.rotation)
        self._owners_of_bodies.append((number + 1, [number + 1] * len(solids)))

    def compile(self) -> RoomModel:
        """Returns the model; the geoms of moving bodies follow those of the room."""
        model = self._spec.compile()
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        moving = [owner for _, owners in self._owners_of_bodies for owner in owners]
        return RoomModel(model, data, np.array(self._owners + moving, np.int32))

    def _solid(
        self, body: "mujoco.MjsBody", solid: Solid, place: Vectors, rotation: Vectors
    ) -> None:
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation).ravel())
        known = {"type": _FORMS[solid.form], "pos": place, "quat": quaternion}
        if solid.mesh is None:
            radius, _, half = solid.half
            known["size"] = (radius, half, 0) if solid.form == "cylinder" else solid.half
        else:
            known["meshname"] = self._mesh(solid.mesh, solid.half)
        if solid.mesh is not None and solid.mesh.image is not None:
            known["material"] = self._image_material(solid.mesh)
        elif solid.texture:
            known["material"] = self._material(solid.texture)
        body.add_geom(rgba=(*solid.colour, 1.0), contype=0, conaffinity=0, mass=0, **known)

    def _mesh(self, mesh: Mesh, scale: Vectors) -> str:
        name = f"mesh{len(self._spec.meshes)}"
        added = self._spec.add_mesh(name=name, scale=scale)
        added.uservert = mesh.vertices.ravel()
        added.userface = mesh.faces.ravel()
        if mesh.places is not None:
            added.usertexcoord = mesh.places.ravel()
            added.userfacetexcoord = mesh.faces.ravel()
        # Catalogues have open meshes, of which the inside is not defined.
        added.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        return name

    def _material(self, name: str) -> str:
        if name not in self._textures:
            self._textures.add(name)
            family = TEXTURES[name]
            seed = int(self._rng.integers(SEEDS))
            self._texture(name, _pixels(family, SIDE, seed), faces=6)
            self._named_material(name, family)
        return name

    def _image_material(self, mesh: Mesh) -> str:
        name = f"image{len(self._spec.textures)}"
        assert mesh.image is not None
        self._texture(name, mesh.image[::-1])  # The bottom row is first.
        self._named_material(name, Family(name, _unused))
        return name

    def _texture(self, name: str, pixels: NDArray[np.uint8], faces: int = 1) -> None:
        kind = mujoco.mjtTexture.mjTEXTURE_CUBE if faces == 6 else mujoco.mjtTexture.mjTEXTURE_2D
        height, width = pixels.shape[:2]
        added = self._spec.add_texture(
            name=name, type=kind, height=faces * height, width=width, nchannel=3
        )
        added.data = np.ascontiguousarray(pixels).tobytes() * faces

    def _named_material(self, name: str, family: Family, repeats: float = 1.0) -> None:
        material = self._spec.add_material(
            name=name,
            texrepeat=(repeats, repeats),
            texuniform=repeats != 1.0,
            specular=family.gloss[0],
            shininess=family.gloss[1],
        )
        material.textures[_RGB] = name

    def _surface(
        self,
        name: str,
        families: Sequence[Family],
        half: tuple[float, float],
        place: Sequence[float] | Vectors,
        axes: Vectors,
    ) -> None:
        """Adds one side of the room, painted or with a drawn texture."""
        known = {}
        tint = colorsys.hsv_to_rgb(
            self._rng.uniform(), self._rng.uniform(0, 0.25), self._rng.uniform(0.8, 1.0)
        )
        if families and self._rng.uniform() < 0.8:
            family = families[int(self._rng.integers(len(families)))]
            if family.name not in self._textures:
                self._textures.add(family.name)
                seed = int(self._rng.integers(SEEDS))
                self._texture(family.name, _pixels(family, ROOM_SIDE, seed))
                self._named_material(family.name, family, family.repeats)
            known["material"] = family.name
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(axes).ravel())
        self._spec.worldbody.add_geom(
            type=_FORMS["box"],
            size=(*half, WALL_M),
            pos=place,
            quat=quaternion,
            rgba=(*tint, 1.0),
            contype=0,
            conaffinity=0,
            **known,
        )
        self._owners.append(0)

    def _light(self) -> None:
        """Draws the light of the camera, and one to three lamps."""
        rng = self._rng
        head = self._spec.visual.headlight
        head.ambient = [rng.uniform(0.2, 0.4)] * 3
        head.diffuse = [rng.uniform(0.1, 0.3)] * 3
        head.specular = [0.0] * 3
        count = int(rng.integers(1, 4))
        for _ in range(count):
            azimuth = rng.uniform(0, 2 * np.pi)
            elevation = np.radians(rng.uniform(25, 85))
            level = np.cos(elevation)
            tint = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0, 0.2), 1.0)
            strength = rng.uniform(0.3, 0.7) / np.sqrt(count)
            self._spec.worldbody.add_light(
                type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
                dir=(level * np.cos(azimuth), level * np.sin(azimuth), -np.sin(elevation)),
                diffuse=[strength * channel for channel in tint],
                castshadow=False,
            )


def _unused(side: int, rng: np.random.Generator) -> Vectors:
    raise AssertionError("The texture is an image.")


@lru_cache(maxsize=256)
def _pixels(family: Family, side: int, seed: int) -> NDArray[np.uint8]:
    """Returns a drawn texture (side, side, 3)."""
    drawn = family.pattern(side, np.random.default_rng(seed))
    return np.round(255 * drawn).astype(np.uint8)


NEAR_M = 0.05
FAR_M = 20.0
_DRAWN = 0
_HIDDEN = 5
_IDS = (int(mujoco.mjtRndFlag.mjRND_SEGMENT), int(mujoco.mjtRndFlag.mjRND_IDCOLOR))
_OFF = tuple(
    int(flag)
    for flag in (
        mujoco.mjtRndFlag.mjRND_SHADOW,
        mujoco.mjtRndFlag.mjRND_SKYBOX,
        mujoco.mjtRndFlag.mjRND_REFLECTION,
    )
)

Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class View:
    """A pinhole camera in a room.

    Attributes:
        T_world_camera: (4, 4), camera to room; x right, y down, z forward.
        intrinsics: (3, 3) in pixels.
        height: Rows.
        width: Columns.
    """

    T_world_camera: Vectors
    intrinsics: Vectors
    height: int
    width: int

    def widened(self) -> "View":
        """Returns the view with as many rows and columns again around the image."""
        intrinsics = self.intrinsics.copy()
        intrinsics[:2, 2] += (self.width / 2, self.height / 2)
        return View(self.T_world_camera, intrinsics, 2 * self.height, 2 * self.width)


class RoomRenderer:
    """Draws one room after the other in one OpenGL context; use one per process.

    `largest` are rows and columns of the largest image.
    """

    def __init__(self, largest: tuple[int, int]) -> None:
        self._largest = largest
        self._graphics: GraphicsContext | None = None
        self._context: mujoco.MjrContext | None = None
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 0
        self._option.geomgroup[_DRAWN] = 1
        self._camera = mujoco.MjvCamera()
        self._room: RoomModel
        self._scene: mujoco.MjvScene

    def open(self, room: RoomModel) -> None:
        """Hands a room to OpenGL; images show this room until the next one.

        Raises:
            RuntimeError: OpenGL is not available; or this process was forked after the first image.
        """
        if self._graphics is None:
            self._graphics = open_graphics(self._largest[1], self._largest[0])
            atexit.register(_close, weakref.ref(self))
        elif forked():
            raise RuntimeError(FORKED)
        self._graphics.make_current()
        self._free_context()
        self._room = room
        context = drawing_context(room.model, mujoco.mjtFontScale.mjFONTSCALE_50)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
        context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        self._context = context
        self._scene = mujoco.MjvScene(room.model, maxgeom=room.model.ngeom + 10)
        for flag in _OFF:
            self._scene.flags[flag] = 0

    def colours(self, view: View) -> NDArray[np.uint8]:
        """Returns colours (H, W, 3), each the mean of 2 x 2 samples."""
        self._look(view)
        height = view.height
        width = view.width
        fine = mujoco.MjrRect(0, 0, 2 * width, 2 * height)
        mujoco.mjr_render(fine, self._scene, self._context)
        samples = np.empty((2 * height, 2 * width, 3), np.uint8)
        mujoco.mjr_readPixels(samples, None, fine, self._context)
        blocks = samples.reshape(height, 2, width, 2, 3)
        mean = (blocks.sum(axis=(1, 3), dtype=np.uint16) + 2) // 4
        return np.ascontiguousarray(mean[::-1].astype(np.uint8))

    def objects(self, view: View) -> tuple[Ids, NDArray[np.uint16]]:
        """Returns object numbers and depth (H, W).

        The number is 1 + the index of the asset, 0 for the room. Depth is along the optical axis in
        millimetres, 0 where nothing is within range.
        """
        self._look(view)
        numbers = self._numbers(view)
        depth = np.empty((view.height, view.width), np.float32)
        rect = mujoco.MjrRect(0, 0, view.width, view.height)
        mujoco.mjr_readPixels(None, depth, rect, self._context)
        return numbers, _millimetres(depth[::-1])

    def alone(self, view: View, number: int) -> NDArray[np.bool_]:
        """Returns the pixels (H, W) of one object if nothing hides it."""
        groups = self._room.model.geom_group
        groups[:] = np.where(self._room.owners == number, _DRAWN, _HIDDEN)
        try:
            self._look(view)
            found: NDArray[np.bool_] = self._numbers(view) == number
            return found
        finally:
            groups[:] = _DRAWN

    def close(self) -> None:
        """Frees the context; the next `open` would make another."""
        if self._graphics is not None and not forked():
            self._graphics.make_current()
            self._free_context()
            self._graphics.free()
        self._graphics = None

    def _free_context(self) -> None:
        if self._context is not None:
            self._context.free()
        self._context = None

    def _look(self, view: View) -> None:
        """Updates the scene, and sets its camera to a view."""
        kinds = int(mujoco.mjtCatBit.mjCAT_ALL)
        room = self._room
        mujoco.mjv_updateScene(
            room.model, room.data, self._option, None, self._camera, kinds, self._scene
        )
        (fx, _, cx), (_, fy, cy) = view.intrinsics[:2]
        left = -cx / fx * NEAR_M
        right = (view.width - cx) / fx * NEAR_M
        for camera in self._scene.camera:
            camera.pos = view.T_world_camera[:3, 3]
            camera.forward = view.T_world_camera[:3, 2]
            camera.up = -view.T_world_camera[:3, 1]
            camera.frustum_near = NEAR_M
            camera.frustum_far = FAR_M
            camera.frustum_center = (left + right) / 2
            camera.frustum_width = (right - left) / 2  # Used as the half width.
            camera.frustum_top = cy / fy * NEAR_M
            camera.frustum_bottom = (cy - view.height) / fy * NEAR_M

    def _numbers(self, view: View) -> Ids:
        scene = self._scene
        owners = self._room.owners
        for geom in scene.geoms[: scene.ngeom]:
            geom.segid = int(owners[geom.objid])  # Drawn as one more; those of -1 are not.
        for flag in _IDS:
            scene.flags[flag] = 1
        rect = mujoco.MjrRect(0, 0, view.width, view.height)
        mujoco.mjr_render(rect, scene, self._context)
        for flag in _IDS:
            scene.flags[flag] = 0
        pixels = np.empty((view.height, view.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, rect, self._context)
        low, middle, high = np.moveaxis(pixels[::-1].astype(np.int32), -1, 0)
        drawn = low + (middle << 8) + (high << 16)
        return np.asarray(np.maximum(drawn - 1, 0), np.int32)


def _close(reference: weakref.ref[RoomRenderer]) -> None:
    renderer = reference()
    if renderer is not None:
        renderer.close()


def _millimetres(buffer: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Converts the depth buffer (H, W), 1 at the near and 0 at the far plane, to millimetres.

    A perspective projection stores (near far / z - near) / (far - near).
    """
    value = buffer.astype(np.float64)
    metres = NEAR_M * FAR_M / (NEAR_M + value * (FAR_M - NEAR_M))
    return np.where(value > 0, np.rint(1000 * metres), 0).astype(np.uint16)
