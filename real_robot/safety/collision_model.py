"""Distances of capsules from each other and from obstacles, by MuJoCo (Todorov et al., 2012).

`mj_collision` with a margin measures all pairs of primitive shapes in one call, equal to the closed
forms up to rounding. One departure: a capsule whose axis is inside a box gets less than its true
depth, but a negative distance. Meshes are convex hulls. Outside of them the distances of
`mj_collision` are too large, so their pairs need `mj_geomDistance`, which is exact to 1e-8 m.
"""

from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import numpy as np
from mujoco import mjtGeom
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Embodiment
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.real_robot.safety.cell import Obstacle
from stringline.real_robot.safety.collision_scene import (
    FINGERS,
    SHORTEST_M,
    add_obstacle,
    fingers,
    scene_of,
)

Vector = NDArray[np.float64]
Pair = tuple[str, str]
"""Names of two geoms: `<arm>/<number of the capsule>`, or that of an obstacle."""

OTHER_ARM, SAME_ARM, OBSTACLE = range(3)
_KINDS = 3
# At least two contacts of each pair fit into the memory.
_BYTES_PER_PAIR = 4096
_FEWEST_BYTES = 1 << 20
_CCD_ITERATIONS = 200
_CCD_TOLERANCE = 1e-9
_NEXT = np.array([1, 2, 0])
_LAST = np.array([2, 0, 1])


class Measured(NamedTuple):
    """The capsules at N poses: C capsules of each of A arms; unused places have no extent.

    Attributes:
        middles: (N, A, C, 3) middles of their axes in the base frame.
        halves: (N, A, C, 3) vectors from there to the second ends of their axes.
        nearest: (N, 3, A, C) distances from the nearest other arm, from the nearest capsule of the
            same arm, and from the nearest obstacle, metres; at most the largest measured one.
    """

    middles: Vector
    halves: Vector
    nearest: Vector


class Contacts(NamedTuple):
    """N pairs at one pose, at most the largest measured distance apart.

    Attributes:
        geoms: (N, 2) their geoms.
        distances: (N,) metres.
        points: (N, 3) between their nearest points, base frame.
        normals: (N, 3) unit vectors from the first geom to the second one, base frame.
    """

    geoms: NDArray[np.int64]
    distances: Vector
    points: Vector
    normals: Vector


class Hinges(NamedTuple):
    """The H hinges of an arm at one pose: a point p on the hand moves by `axes` x p + `offsets`.

    Attributes:
        axes: (H, 3) directions, base frame.
        offsets: (H, 3) motion of the origin of the base frame, metres per radian.
        T_base_gripper: (4, 4) pose of the gripper.
    """

    axes: Vector
    offsets: Vector
    T_base_gripper: Matrix


class CollisionModel:
    """Capsules on arms, and obstacles around them.

    Args:
        mounts: Capsules of each arm.
        obstacles: Obstacles in the base frame.
        pairs: Pairs whose distance is measured.
        far: Largest measured distance, metres.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        mounts: Sequence[Sequence[CapsuleMount]],
        obstacles: Sequence[Obstacle],
        pairs: Sequence[Pair],
        far: float,
    ) -> None:
        self._far = far
        self._shape = len(mounts), max(len(of_arm) for of_arm in mounts)
        self._size = self._shape[0] * self._shape[1]
        meshes = {one.name for one in obstacles if one.shape == "mesh"}
        simple = [pair for pair in pairs if pair[1] not in meshes]
        spec = scene_of(embodiment, mounts)
        for obstacle in obstacles:
            add_obstacle(spec, obstacle)
        for one, other in simple:
            spec.add_pair(geomname1=one, geomname2=other, margin=far)
        spec.memory = _FEWEST_BYTES + _BYTES_PER_PAIR * len(simple)
        spec.option.ccd_iterations = _CCD_ITERATIONS
        spec.option.ccd_tolerance = _CCD_TOLERANCE
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        # Views, whose creation takes as long as the motion of an arm.
        self._qpos = self._data.qpos
        self._xpos = self._data.geom_xpos
        self._xmat = self._data.geom_xmat
        self._index_geoms(embodiment.arms, mounts)
        number = {self._model.geom(i).name: i for i in range(self._model.ngeom)}
        hulls = [(number[one], number[other]) for one, other in pairs if other in meshes]
        self._hulls = np.array(hulls, dtype=np.int64).reshape(-1, 2)
        self._index_joints(embodiment, mounts)

    def _index_geoms(self, arms: Sequence[str], mounts: Sequence[Sequence[CapsuleMount]]) -> None:
        """Finds the geoms of the capsules, and for each geom its place in (A, C), or -1."""
        places = [
            (self._model.geom(f"{arm}/{i}").id, place * self._shape[1] + i)
            for place, arm in enumerate(arms)
            for i in range(len(mounts[place]))
        ]
        self._geoms, self._places = np.array(places, dtype=np.int64).reshape(-1, 2).T
        self._place_of = np.full(self._model.ngeom, -1)
        self._place_of[self._geoms] = self._places
        owner = self._place_of // self._shape[1]
        self._kind_of = np.where(owner[:, None] == owner, SAME_ARM, OTHER_ARM)
        self._kind_of[(owner < 0)[:, None] | (owner < 0)] = OBSTACLE
        capsules = self._model.geom_type[self._geoms] == mjtGeom.mjGEOM_CAPSULE
        self._halves = np.where(capsules, self._model.geom_size[self._geoms, 1], 0.0)[:, None]

    def _index_joints(
        self, embodiment: Embodiment, mounts: Sequence[Sequence[CapsuleMount]]
    ) -> None:
        """Finds the entry of the joint vector that moves each joint of the model, and its scale."""
        count = self._model.njnt
        self._hinges = []
        self._entries = np.zeros(count, dtype=np.int64)
        self._scales = np.ones(count)
        for chain, of_arm in zip(embodiment.chains, mounts, strict=True):
            arm = chain.arm
            joints = [self._model.joint(f"{arm}/{link.name}").id for link in chain.links]
            last = int(self._model.jnt_bodyid[joints[-1]])
            self._hinges.append((np.array(joints), last, chain.T_last_gripper))
            self._entries[joints] = embodiment.hinges[arm]
            for number in fingers(of_arm):
                joint = self._model.joint(f"{arm}/{FINGERS}{number}").id
                self._entries[joint] = embodiment.grippers[arm]
                self._scales[joint] = np.linalg.norm(of_arm[number].per_opening)

    def measure(self, q: Vector) -> Measured:
        """Returns the capsules at joint vectors (N, J), and their distances."""
        count, data = len(q), self._data
        positions = q[:, self._entries] * self._scales
        middles = np.empty((count, *self._xpos.shape))
        turns = np.empty((count, *self._xmat.shape))
        geoms, distances = [], []
        for number in range(count):
            self._qpos[:] = positions[number]
            mujoco.mj_kinematics(self._model, data)
            mujoco.mj_collision(self._model, data)
            middles[number] = self._xpos
            turns[number] = self._xmat
            near = data.contact  # In memory that the next pose overwrites.
            geoms.append(near.geom.copy())
            distances.append(near.dist.copy())
            if len(self._hulls):
                found = self._from_hulls()
                geoms[-1] = np.concatenate([geoms[-1], found.geoms])
                distances[-1] = np.concatenate([distances[-1], found.distances])
        if data.warning[mujoco.mjtWarning.mjWARN_CONTACTFULL].number:
            raise RuntimeError("The memory of the collision model is too small for all contacts.")
        shape = (count, *self._shape, 3)
        placed = np.zeros((2, count, self._size, 3))
        placed[0][:, self._places] = middles[:, self._geoms]
        placed[1][:, self._places] = turns[:, self._geoms, 2::3] * self._halves
        poses = np.repeat(np.arange(count), [len(each) for each in distances])
        nearest = self._nearest(poses, np.concatenate(geoms), np.concatenate(distances), count)
        return Measured(placed[0].reshape(shape), placed[1].reshape(shape), nearest)

    def contacts(self) -> Contacts:
        """Returns the pairs that are near at the pose that was measured last."""
        contact = self._data.contact
        near = Contacts(contact.geom, contact.dist, contact.pos, contact.frame[:, :3])
        if not len(self._hulls):
            return near
        hulls = self._from_hulls()
        return Contacts(
            np.concatenate([near.geoms, hulls.geoms]),
            np.concatenate([near.distances, hulls.distances]),
            np.concatenate([near.points, hulls.points]),
            np.concatenate([near.normals, hulls.normals]),
        )

    def from_obstacles(self) -> list[tuple[str, str, float]]:
        """Returns capsule, obstacle and distance of the pairs that are near, as `contacts`."""
        near = self.contacts()
        kinds, places = self.sides(near.geoms)
        found = []
        for pair in np.flatnonzero(kinds == OBSTACLE):
            swapped = places[pair, 0] < 0
            capsule, obstacle = (
                self._model.geom(int(geom)).name
                for geom in near.geoms[pair, :: -1 if swapped else 1]
            )
            found.append((capsule, obstacle, float(near.distances[pair])))
        return found

    def hinges(self, place: int) -> Hinges:
        """Returns the hinges of an arm, given by its number, at the pose that was measured last."""
        joints, body, T_last_gripper = self._hinges[place]
        axes = self._data.xaxis[joints]
        T_base_last = pose(self._data.xpos[body], self._data.xmat[body].reshape(3, 3))
        return Hinges(axes, cross(self._data.xanchor[joints], axes), T_base_last @ T_last_gripper)

    def sides(self, geoms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the kinds (N,) of pairs of geoms (N, 2), and their places (N, 2) in (A, C).

        The place of an obstacle is -1.
        """
        places = self._place_of[geoms]
        return self._kind_of[geoms[:, 0], geoms[:, 1]], places

    def _from_hulls(self) -> Contacts:
        """Returns the pairs with meshes that are near at the current pose."""
        one, other = self._hulls.T
        apart = np.linalg.norm(self._data.geom_xpos[one] - self._data.geom_xpos[other], axis=1)
        bounds = self._model.geom_rbound
        near = self._hulls[apart < bounds[one] + bounds[other] + self._far]
        distances = np.zeros(len(near))
        ends = np.zeros((len(near), 6))
        for i, (a, b) in enumerate(near):
            distances[i] = mujoco.mj_geomDistance(
                self._model, self._data, int(a), int(b), self._far, ends[i]
            )
        between = ends[:, 3:] - ends[:, :3]
        length = np.maximum(np.linalg.norm(between, axis=1), SHORTEST_M)
        normals = between * (np.sign(distances) / length)[:, None]
        return Contacts(near, distances, (ends[:, 3:] + ends[:, :3]) / 2, normals)

    def _nearest(
        self, poses: NDArray[np.int64], geoms: NDArray[np.int64], distances: Vector, count: int
    ) -> Vector:
        nearest = np.full((count, _KINDS, self._size), self._far)
        if len(poses):
            kinds, places = self.sides(geoms)
            for side in places.T:
                ours = side >= 0
                np.minimum.at(nearest, (poses[ours], kinds[ours], side[ours]), distances[ours])
        return nearest.reshape(count, _KINDS, *self._shape)


def cross(a: Vector, b: Vector) -> Vector:
    """Returns the cross products (..., 3) of vectors (..., 3), faster than `np.cross`."""
    return a[..., _NEXT] * b[..., _LAST] - a[..., _LAST] * b[..., _NEXT]
