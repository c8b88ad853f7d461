"""The collision model: MuJoCo measures capsules, points and distances of the arms at N poses.

The distances are those of capsules from each other and from obstacles (Todorov et al., 2012).
Several copies of all arms stand in one model, so one pass moves them to as many poses.
`mj_collision` with a margin measures all pairs of primitive shapes in one call, equal to the closed
forms up to rounding. One departure: a capsule whose axis is inside a box gets less than its true
depth, but a negative distance. Meshes are convex hulls. Outside of them the distances of
`mj_collision` are too large, so their pairs need `mj_geomDistance`, which is exact to 1e-8 m.

The arms have C capsules each, and P points (`LinkPoints`, whose Cartesian speed is limited) and H
revolute joints in total. Vectors are in the base frame, in metres.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import mujoco
import numpy as np
from mujoco import mjtGeom, mjtJoint
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Chain, Embodiment
from stringline.datasets.embodiments.transforms import Matrix, quaternion
from stringline.real_robot.safety.cell import Obstacle

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

OTHER_ARM, SAME_ARM, OBSTACLE = range(3)
KINDS = 3
_NEXT = np.array([1, 2, 0])
_LAST = np.array([2, 0, 1])


class Contacts(NamedTuple):
    """K pairs of near shapes, at most the largest measured distance apart.

    Attributes:
        poses: (K,) number of the pose.
        places: (K, 2) numbers of the capsules among the A times C, then those of obstacles.
        kinds: (K,) `OTHER_ARM`, `SAME_ARM` or `OBSTACLE`.
        distances: (K,) metres.
        points: (K, 3) between their nearest points.
        normals: (K, 3) unit vectors from the first shape to the second one.
    """

    poses: Indices
    places: Indices
    kinds: Indices
    distances: Vector
    points: Vector
    normals: Vector

    def where(self, kept: NDArray[np.bool_] | Indices) -> "Contacts":
        """Returns the pairs at `kept`, a mask (K,) or indices."""
        return Contacts(
            self.poses[kept],
            self.places[kept],
            self.kinds[kept],
            self.distances[kept],
            self.points[kept],
            self.normals[kept],
        )

    @staticmethod
    def joined(parts: Sequence["Contacts"]) -> "Contacts":
        """Returns the pairs of all parts."""
        return Contacts(
            np.concatenate([part.poses for part in parts]),
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.kinds for part in parts]),
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.normals for part in parts]),
        )


class Measured(NamedTuple):
    """The arms at N poses.

    Attributes:
        ends: (N, A, C, 2, 3) ends of the axes of the capsules; of no meaning in unused places.
        nearest: (N, 3, A, C) distances from the nearest other arm, from the nearest capsule of the
            same arm, and from the nearest obstacle; at most the largest measured one.
        points: (N, P, 3) points fixed to links (`LinkPoints`), of one arm after the other.
        axes: (N, H, 3) directions of the revolute joints, of one arm after the other.
        anchors: (N, H, 3) points on their axes.
        contacts: Pairs that are near.
    """

    ends: Vector
    nearest: Vector
    points: Vector
    axes: Vector
    anchors: Vector
    contacts: Contacts

    def last(self, count: int) -> "Measured":
        """Returns the last `count` poses."""
        first = len(self.ends) - count
        contacts = self.contacts.where(self.contacts.poses >= first)
        return Measured(
            self.ends[first:],
            self.nearest[first:],
            self.points[first:],
            self.axes[first:],
            self.anchors[first:],
            contacts._replace(poses=contacts.poses - first),
        )

    @staticmethod
    def joined(parts: Sequence["Measured"]) -> "Measured":
        """Returns the poses of several passes, in their order."""
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *(len(part.ends) for part in parts[:-1])]).tolist()
        contacts = [
            part.contacts._replace(poses=part.contacts.poses + first)
            for part, first in zip(parts, firsts, strict=True)
        ]
        return Measured(
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.nearest for part in parts]),
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.axes for part in parts]),
            np.concatenate([part.anchors for part in parts]),
            Contacts.joined(contacts),
        )


def cross(a: Vector, b: Vector) -> Vector:
    """Returns the cross products (..., 3) of vectors (..., 3), faster than `np.cross`."""
    return a[..., _NEXT] * b[..., _LAST] - a[..., _LAST] * b[..., _NEXT]


class LinkPoints:
    """P points fixed to the links of one arm: gripper, tips, and ends of its capsules' axes.

    No point of a segment of a rigid body is faster than both ends. So these points stand for all
    axes, including the elbow, for the gripper, and for tools and wrist cameras from tip to tip.
    Fingers count as open: closed ones lie between them. The motion of fingers relative to the hand
    does not count.

    Args:
        chain: The arm.
        carried: Capsules of its tool and its wrist cameras, on its last link.

    Attributes:
        revolute_joints: (H,) indices of its revolute joints in the joint vector.
        places: The points: link, and place (3,) in its frame; the gripper is the last one.
        reach: (H,) upper bound of the distance of all points from the axis of each revolute joint,
            metres.
    """

    def __init__(
        self, embodiment: Embodiment, chain: Chain, carried: Sequence[CapsuleMount]
    ) -> None:
        self.revolute_joints = embodiment.revolute_joints[chain.arm]
        own = [_axis_ends(embodiment, link) for link in range(len(chain.links))]
        own[-1] += [tip for capsule in carried for tip in _tips(capsule)]
        own[-1].append(chain.T_last_gripper[:3, 3])
        self.places = [(link, place) for link, places in enumerate(own) for place in places]
        self.reach = _reach(chain, own)


def _axis_ends(embodiment: Embodiment, link: int) -> list[Vector]:
    """Returns the ends (3,) of the axes of the capsules of a link, in its frame."""
    mounts = [mount for mount in embodiment.capsule_mounts if mount.link == link]
    return [end + mount.per_opening for mount in mounts for end in (mount.start, mount.end)]


def _tips(capsule: CapsuleMount) -> list[Vector]:
    """Returns the outermost points (3,) of a capsule along its axis; the center of a sphere."""
    axis = capsule.end - capsule.start
    length = float(np.linalg.norm(axis))
    if length == 0.0:
        return [capsule.start]
    beyond = capsule.radius / length * axis
    return [capsule.start - beyond, capsule.end + beyond]


def _reach(chain: Chain, points: list[list[Vector]]) -> Vector:
    """Returns the reach (H,) of links with points (3,): the largest length of a way outwards."""
    reach = np.zeros(len(points))
    beyond = 0.0
    for link in reversed(range(len(points))):
        own = max((float(np.linalg.norm(point)) for point in points[link]), default=0.0)
        reach[link] = max(own, beyond)
        beyond = reach[link] + float(np.linalg.norm(chain.T_parent_link[link, :3, 3]))
    return reach


ENDS = ("-", "+")
"""After the number of a capsule in the names of the sites at the ends of its axis."""
FINGERS = "fingers:"
"""Before the number of the capsule in the name of a joint that the gripper moves."""
SHORTEST_M = 1e-6
"""Length of an axis; a capsule with a shorter one is a sphere."""
_TYPES: Mapping[str, mjtGeom] = {
    "box": mjtGeom.mjGEOM_BOX,
    "capsule": mjtGeom.mjGEOM_CAPSULE,
    "sphere": mjtGeom.mjGEOM_SPHERE,
    "mesh": mjtGeom.mjGEOM_MESH,
}


def named(name: str, copy: int) -> str:
    """Returns the name of a part of a copy of the arms."""
    return f"{name}#{copy}"


def add_arms(
    spec: mujoco.MjSpec,
    embodiment: Embodiment,
    mounts: Sequence[Sequence[CapsuleMount]],
    points: Sequence[Sequence[tuple[int, Vector]]],
    copy: int,
) -> None:
    """Adds a copy of the kinematic trees of all arms, with their capsules.

    `points` are those of each arm, with their links; they and the ends of axes become sites.
    """
    for chain, of_arm, fixed in zip(embodiment.chains, mounts, points, strict=True):
        bodies = _bodies(spec, chain, copy)
        for number, (link, place) in enumerate(fixed):
            bodies[link + 1].add_site(name=named(f"{chain.arm}/{number}", copy), pos=place)
        for number, mount in enumerate(of_arm):
            body = bodies[mount.link + 1]
            if number in fingers(of_arm):
                body = _moving(body.add_body())
                body.add_joint(
                    name=named(f"{chain.arm}/{FINGERS}{number}", copy),
                    type=mjtJoint.mjJNT_SLIDE,
                    axis=mount.per_opening,
                )
            _add_capsule(body, named(f"{chain.arm}/{number}", copy), mount)
            for side, end in enumerate((mount.start, mount.end)):
                body.add_site(name=named(f"{chain.arm}/{number}{ENDS[side]}", copy), pos=end)


def fingers(mounts: Sequence[CapsuleMount]) -> list[int]:
    """Returns the capsules that the gripper moves."""
    return [number for number, mount in enumerate(mounts) if mount.per_opening.any()]


def _bodies(spec: mujoco.MjSpec, chain: Chain, copy: int) -> list[mujoco.MjsBody]:
    """Adds the root and the links of an arm, and returns them."""
    bodies = [_at(spec.worldbody.add_body(), chain.T_base_root)]
    for link in chain.links:
        body = _moving(_at(bodies[-1].add_body(), link.T_parent_link))
        body.add_joint(
            name=named(f"{chain.arm}/{link.name}", copy), type=mjtJoint.mjJNT_HINGE, axis=link.axis
        )
        bodies.append(body)
    return bodies


def _at(body: mujoco.MjsBody, T_parent_body: Matrix) -> mujoco.MjsBody:
    body.pos = T_parent_body[:3, 3]
    body.quat = quaternion(T_parent_body[:3, :3])
    return body


def _moving(body: mujoco.MjsBody) -> mujoco.MjsBody:
    """Gives a body an inertia, which MuJoCo demands of moving bodies and nothing uses."""
    body.mass = 1.0
    body.inertia = (1.0, 1.0, 1.0)
    body.explicitinertial = True
    return body


def _add_capsule(body: mujoco.MjsBody, name: str, mount: CapsuleMount) -> None:
    short = bool(np.linalg.norm(mount.end - mount.start) < SHORTEST_M)
    shape = {"pos": mount.start} if short else {"fromto": [*mount.start, *mount.end]}
    body.add_geom(
        name=name,
        type=mjtGeom.mjGEOM_SPHERE if short else mjtGeom.mjGEOM_CAPSULE,
        size=(mount.radius, 0, 0),
        contype=0,
        conaffinity=0,
        **shape,
    )


def add_obstacle(spec: mujoco.MjSpec, obstacle: Obstacle) -> None:
    """Adds an obstacle, whose geom has its name."""
    T_base_obstacle = obstacle.T_base_obstacle
    mesh = {}
    if obstacle.file is not None:
        spec.add_mesh(name=obstacle.name, file=str(obstacle.file), scale=[obstacle.scale] * 3)
        mesh = {"meshname": obstacle.name}
    spec.worldbody.add_geom(
        name=obstacle.name,
        type=_TYPES[obstacle.shape],
        size=obstacle.size,
        pos=T_base_obstacle[:3, 3],
        quat=quaternion(T_base_obstacle[:3, :3]),
        contype=0,
        conaffinity=0,
        **mesh,
    )


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
        revolute: list[int] = []
        sites: list[int] = []
        ends = np.zeros((*self._shape, len(ENDS)), dtype=np.int64)
        for chain, of_arm, fixed in zip(embodiment.chains, mounts, points, strict=True):
            own = [self._model.joint(named(f"{chain.arm}/{one.name}", 0)).id for one in chain.links]
            revolute += own
            sites += [self._model.site(named(f"{chain.arm}/{i}", 0)).id for i in range(len(fixed))]
            arm = embodiment.arms.index(chain.arm)
            for i, side in product(range(len(of_arm)), range(len(ENDS))):
                name = named(f"{chain.arm}/{i}{ENDS[side]}", 0)
                ends[arm, i, side] = self._model.site(name).id
            self._entries[own] = embodiment.revolute_joints[chain.arm]
            for number in fingers(of_arm):
                joint = self._model.joint(named(f"{chain.arm}/{FINGERS}{number}", 0)).id
                self._entries[joint] = embodiment.grippers[chain.arm]
                self._scales[joint] = np.linalg.norm(of_arm[number].per_opening)
        self._revolute = np.array(revolute, dtype=np.int64)
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
            self._xaxis[:count].take(self._revolute, axis=1),
            self._xanchor[:count].take(self._revolute, axis=1),
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


# Numbers of poses for which there is a model. A pass takes as long as all of its copies.
_COPIES = (1, 5, 12)


class CollisionModel:
    """Capsules on arms, and obstacles around them.

    Args:
        mounts: Capsules of each arm.
        obstacles: Obstacles in the base frame.
        pairs: Pairs whose distance is measured.
        far: Largest measured distance, metres.
        link_points: Points of each arm whose speed is limited.

    Attributes:
        obstacles: Number of obstacles.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        mounts: Sequence[Sequence[CapsuleMount]],
        obstacles: Sequence[Obstacle],
        pairs: Sequence[Pair],
        far: float,
        link_points: Sequence[LinkPoints],
    ) -> None:
        self.obstacles = len(obstacles)
        width = max(len(of_arm) for of_arm in mounts)
        self._names = [f"{arm}/{i}" for arm in embodiment.arms for i in range(width)]
        self._names += [obstacle.name for obstacle in obstacles]
        self._passes = [
            ArmCopies(
                embodiment, mounts, obstacles, pairs, far, link_points=link_points, count=count
            )
            for count in _COPIES
        ]
        # The smallest pass for each number of poses.
        self._pass_for = [
            self._passes[int(np.searchsorted(_COPIES, count))] for count in range(_COPIES[-1] + 1)
        ]
        revolute = [len(chain.links) for chain in embodiment.chains]
        firsts = np.cumsum([0, *revolute])
        # One place more than there are: what never moves, such as the table.
        self._moves = np.zeros((len(self._names) + 1, firsts[-1]))
        for place, of_arm in enumerate(mounts):
            for i, mount in enumerate(of_arm):
                moving = slice(firsts[place], firsts[place] + mount.link + 1)
                self._moves[place * width + i, moving] = 1.0

    def measure(self, q: Vector) -> Measured:
        """Returns the arms at joint vectors (N, J)."""
        most = _COPIES[-1]
        parts = [q[first : first + most] for first in range(0, max(len(q), 1), most)]
        return Measured.joined([self._pass_for[len(part)].measure(part) for part in parts])

    def slopes(self, measured: Measured, near: Contacts) -> Vector:
        """Returns how the H revolute joints change K distances: (K, H), metres per radian."""
        axes = measured.axes[near.poses]
        anchors = measured.anchors[near.poses]
        # A revolute joint moves a point p by axis x (p - anchor) per radian.
        levers = near.points[:, None] - anchors
        along = np.einsum("khi,khi->kh", axes, cross(levers, near.normals[:, None]))
        return np.asarray(along * (self._moves[near.places[:, 1]] - self._moves[near.places[:, 0]]))

    def from_obstacles(self, measured: Measured) -> list[tuple[str, str, float]]:
        """Returns capsule, obstacle and distance of the pairs that are near."""
        near = measured.contacts.where(measured.contacts.kinds == OBSTACLE)
        capsules, obstacles = np.sort(near.places, axis=1).T.tolist()
        return [
            (self._names[capsule], self._names[obstacle], distance)
            for capsule, obstacle, distance in zip(
                capsules, obstacles, near.distances.tolist(), strict=True
            )
        ]
