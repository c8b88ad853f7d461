"""Models of rooms for MuJoCo, with drawn surfaces and lights."""

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.sim.looks.families import HELD_OUT, SEEN, Family
from stringline.sim.scenes.palette import TEXTURES
from stringline.sim.scenes.rooms import PlacedAsset, Room
from stringline.sim.scenes.solids import Mesh, Solid, Vectors, turned

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
