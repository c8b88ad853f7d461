"""Several copies of all arms in one model of MuJoCo, which one pass moves to as many poses."""

from collections.abc import Sequence
from itertools import product

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Embodiment
from stringline.real_robot.safety.cell import Obstacle
from stringline.real_robot.safety.collision_scene import (
    ENDS,
    FINGERS,
    SHORTEST_M,
    add_arms,
    add_obstacle,
    fingers,
    named,
)
from stringline.real_robot.safety.link_points import LinkPoints
from stringline.real_robot.safety.measured import (
    KINDS,
    OBSTACLE,
    OTHER_ARM,
    SAME_ARM,
    Contacts,
    Indices,
    Measured,
)

Vector = NDArray[np.float64]
Pair = tuple[str, str]
"""Names of two shapes: `<arm>/<number of the capsule>`, or that of an obstacle."""

# Two contacts of each pair fit into the memory.
_BYTES_PER_PAIR = 1536
_FEWEST_BYTES = 1 << 20
_CCD_ITERATIONS = 200
_CCD_TOLERANCE = 1e-9


class ArmCopies:
    """Copies of all arms, among the same obstacles. No copy meets another one.

    Args:
        mounts: Capsules of each arm.
        obstacles: Obstacles in the base frame.
        pairs: Pairs whose distance is measured.
        far: Largest measured distance, metres.
        link_points: Points of each arm, which become sites.
        count: Number of copies.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        mounts: Sequence[Sequence[CapsuleMount]],
        obstacles: Sequence[Obstacle],
        pairs: Sequence[Pair],
        far: float,
        *,
        link_points: Sequence[LinkPoints],
        count: int,
    ) -> None:
        self._far = far
        self._shape = len(mounts), max(len(of_arm) for of_arm in mounts)
        self._size = self._shape[0] * self._shape[1]
        copied = _copied(pairs, obstacles, count)
        points = [of_arm.places for of_arm in link_points]
        spec = mujoco.MjSpec()
        for obstacle in obstacles:
            add_obstacle(spec, obstacle)
        for copy in range(count):
            add_arms(spec, embodiment, mounts, points, copy)
        for one, other, mesh in copied:
            if not mesh:
                spec.add_pair(geomname1=one, geomname2=other, margin=far)
        spec.memory = _FEWEST_BYTES + _BYTES_PER_PAIR * len(copied)
        spec.option.ccd_iterations = _CCD_ITERATIONS
        spec.option.ccd_tolerance = _CCD_TOLERANCE
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        self._index_geoms(embodiment.arms, mounts, obstacles, count)
        hulls = [(one, other) for one, other, mesh in copied if mesh]
        self._hulls = np.array(
            [[self._model.geom(name).id for name in pair] for pair in hulls], dtype=np.int64
        ).reshape(-1, 2)
        self._index_joints(embodiment, mounts, points, count)
        self._full = self._data.warning[mujoco.mjtWarning.mjWARN_CONTACTFULL]

    def _index_geoms(
        self,
        arms: Sequence[str],
        mounts: Sequence[Sequence[CapsuleMount]],
        obstacles: Sequence[Obstacle],
        count: int,
    ) -> None:
        """Finds the copy and the place of each geom."""
        names = [
            f"{arm}/{i}" for arm, own in zip(arms, mounts, strict=True) for i in range(len(own))
        ]
        places = [
            place * self._shape[1] + i for place, own in enumerate(mounts) for i in range(len(own))
        ]
        found = [
            [self._model.geom(named(name, copy)).id for name in names] for copy in range(count)
        ]
        geoms = np.array(found, dtype=np.int64).reshape(count, -1)
        self._place_of = np.zeros(self._model.ngeom, dtype=np.int64)
        self._copy_of = np.full(self._model.ngeom, -1)
        self._place_of[geoms] = places
        self._copy_of[geoms] = np.arange(count)[:, None]
        for number, obstacle in enumerate(obstacles):
            self._place_of[self._model.geom(obstacle.name).id] = self._size + number
        owner = np.arange(self._size + len(obstacles)) // self._shape[1]
        self._kind_of = np.where(owner[:, None] == owner, SAME_ARM, OTHER_ARM)
        self._kind_of[self._size :] = self._kind_of[:, self._size :] = OBSTACLE

    def _index_joints(
        self,
        embodiment: Embodiment,
        mounts: Sequence[Sequence[CapsuleMount]],
        points: Sequence[Sequence[object]],
        count: int,
    ) -> None:
        """Finds the entry of the joint vector that moves each joint of a copy, and its scale.

        All copies have the same order of joints, and follow each other.
        """
        each = self._model.njnt // count
        self._entries = np.zeros(each, dtype=np.int64)
        self._scales = np.ones(each)
        hinges: list[int] = []
        sites: list[int] = []
        ends = np.zeros((*self._shape, len(ENDS)), dtype=np.int64)
        for chain, of_arm, fixed in zip(embodiment.chains, mounts, points, strict=True):
            own = [self._model.joint(named(f"{chain.arm}/{one.name}", 0)).id for one in chain.links]
            hinges += own
            sites += [self._model.site(named(f"{chain.arm}/{i}", 0)).id for i in range(len(fixed))]
            arm = embodiment.arms.index(chain.arm)
            for i, side in product(range(len(of_arm)), range(len(ENDS))):
                name = named(f"{chain.arm}/{i}{ENDS[side]}", 0)
                ends[arm, i, side] = self._model.site(name).id
            self._entries[own] = embodiment.hinges[chain.arm]
            for number in fingers(of_arm):
                joint = self._model.joint(named(f"{chain.arm}/{FINGERS}{number}", 0)).id
                self._entries[joint] = embodiment.grippers[chain.arm]
                self._scales[joint] = np.linalg.norm(of_arm[number].per_opening)
        self._hinges = np.array(hinges, dtype=np.int64)
        self._points = len(sites)
        self._sites = np.array([*sites, *ends.flat], dtype=np.int64)
        # Views, whose creation takes as long as the motion of an arm.
        data = self._data
        self._qpos = data.qpos.reshape(count, each)
        self._xaxis = data.xaxis.reshape(count, each, 3)
        self._xanchor = data.xanchor.reshape(count, each, 3)
        self._site_xpos = data.site_xpos.reshape(count, -1, 3)
        self._xpos = data.geom_xpos

    def measure(self, q: Vector) -> Measured:
        """Returns the arms at joint vectors (N, J), up to the number of copies."""
        count = len(q)
        self._qpos[:count] = q[:, self._entries] * self._scales
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_collision(self._model, self._data)
        if self._full.number:
            raise RuntimeError("The memory of the collision model is too small for all contacts.")
        contacts = self._contacts(count)
        sites = self._site_xpos[:count].take(self._sites, axis=1)
        return Measured(
            sites[:, self._points :].reshape(count, *self._shape, len(ENDS), 3),
            self._nearest(contacts, count),
            sites[:, : self._points],
            self._xaxis[:count].take(self._hinges, axis=1),
            self._xanchor[:count].take(self._hinges, axis=1),
            contacts,
        )

    def _contacts(self, count: int) -> Contacts:
        """Returns the near pairs of the first copies."""
        near = self._data.contact  # In memory that the next pass overwrites.
        geoms, distances, points, normals = near.geom, near.dist, near.pos, near.frame[:, :3]
        if len(self._hulls):
            of_hulls = self._from_hulls(count)
            geoms = np.concatenate([geoms, of_hulls[0]])
            distances = np.concatenate([distances, of_hulls[1]])
            points = np.concatenate([points, of_hulls[2]])
            normals = np.concatenate([normals, of_hulls[3]])
        poses = self._copy_of[geoms].max(axis=1, initial=-1)
        kept = np.flatnonzero(poses < count)
        places = self._place_of[geoms[kept]]
        return Contacts(
            poses[kept],
            places,
            self._kind_of[places[:, 0], places[:, 1]],
            distances[kept],
            points[kept],
            normals[kept],
        )

    def _from_hulls(self, count: int) -> tuple[Indices, Vector, Vector, Vector]:
        """Returns geoms, distances, points and normals of near pairs with meshes."""
        one, other = self._hulls[self._copy_of[self._hulls[:, 0]] < count].T
        apart = np.linalg.norm(self._xpos[one] - self._xpos[other], axis=1)
        bounds = self._model.geom_rbound
        close = apart < bounds[one] + bounds[other] + self._far
        near = np.stack([one[close], other[close]], axis=1)
        distances = np.zeros(len(near))
        ends = np.zeros((len(near), 6))
        for i, (a, b) in enumerate(near.tolist()):
            distances[i] = mujoco.mj_geomDistance(self._model, self._data, a, b, self._far, ends[i])
        between = ends[:, 3:] - ends[:, :3]
        length = np.maximum(np.linalg.norm(between, axis=1), SHORTEST_M)
        normals = between * (np.sign(distances) / length)[:, None]
        return near, distances, (ends[:, 3:] + ends[:, :3]) / 2, normals

    def _nearest(self, contacts: Contacts, count: int) -> Vector:
        """Returns the distances (N, 3, A, C) of each capsule from the nearest other shapes."""
        width = len(self._kind_of)
        nearest = np.full((count, KINDS, width), self._far)
        rows = (contacts.poses * KINDS + contacts.kinds) * width
        flat = nearest.reshape(-1)
        np.minimum.at(flat, rows + contacts.places[:, 0], contacts.distances)
        np.minimum.at(flat, rows + contacts.places[:, 1], contacts.distances)
        return nearest[..., : self._size].reshape(count, KINDS, *self._shape)


def _copied(
    pairs: Sequence[Pair], obstacles: Sequence[Obstacle], count: int
) -> list[tuple[str, str, bool]]:
    """Returns the names of the geoms of each pair in each copy, and whether one is a mesh."""
    still = {one.name for one in obstacles}
    meshes = {one.name for one in obstacles if one.shape == "mesh"}
    return [
        (named(one, copy), other if other in still else named(other, copy), other in meshes)
        for copy in range(count)
        for one, other in pairs
    ]
