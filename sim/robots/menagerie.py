"""Arms drawn with the meshes of MuJoCo Menagerie (Zakka et al., 2022), on our own bodies, which collide and move as before.

Where its models are: `MENAGERIE_ROOT`, a folder with `aloha` and `kuka_iiwa_14` in it, else the
package `mujoco-menagerie`, which fetches them when they are first asked for.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path

import mujoco
import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.datasets.embodiments.iiwa14_mjcf import STAND
from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, quaternion
from stringline.sim.robots.published_model import PublishedModel, Visual
from stringline.sim.robots.robot import Robot

ROOT_VARIABLE = "MENAGERIE_ROOT"
PACKAGE = "mujoco_menagerie"
HOW = (
    "Set MENAGERIE_ROOT to a copy of github.com/google-deepmind/mujoco_menagerie, or pip install "
    '"stringline[menagerie]", '
    "which fetches the models that it is asked for."
)
POSES = 8  # Drawn ones, in which the places of bodies are compared.
NEAR_M = 0.001
NEAR_DEG = 0.1


@dataclass(frozen=True)
class Counterpart:
    """A model of Menagerie, and what of it is what of one of our arms, whose name stands for `{arm}`.

    Attributes:
        folder: Of the model.
        file: In that folder.
        bodies: Ours to theirs; the foot is the first.
        joints: Ours to theirs.
        own_frames: Of our bodies those whose frame sits in the body otherwise than theirs does.
    """

    folder: str
    file: str
    bodies: Mapping[str, str]
    joints: Mapping[str, str]
    own_frames: tuple[str, ...] = ()

    def of(self, arm: str) -> "Counterpart":
        """Returns it with the name of an arm in it."""
        bodies, joints = (
            {ours.format(arm=arm): theirs.format(arm=arm) for ours, theirs in names.items()}
            for names in (self.bodies, self.joints)
        )
        return Counterpart(
            self.folder,
            self.file,
            bodies,
            joints,
            tuple(name.format(arm=arm) for name in self.own_frames),
        )


ALOHA_LINKS = (
    "base",
    "shoulder",
    "upper_arm",
    "upper_forearm",
    "lower_forearm",
    "wrist",
    "gripper",
)
ALOHA_JOINTS = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate")
# Its left finger is the one on the right, seen along the gripper.
FINGERS = {"left": "right", "right": "left"}
ALOHA_2 = Counterpart(
    "aloha",
    "aloha.xml",
    {
        **{f"{{arm}}/{name}_link": f"{{arm}}/{name}_link" for name in ALOHA_LINKS},
        "{arm}/gripper_base": "{arm}/gripper_base",
        **{
            f"{{arm}}/{ours}_finger_link": f"{{arm}}/{theirs}_finger_link"
            for ours, theirs in FINGERS.items()
        },
    },
    {
        **{f"{{arm}}/{name}": f"{{arm}}/{name}" for name in ALOHA_JOINTS},
        **{
            f"{{arm}}/{ours}_finger": f"{{arm}}/{theirs}_finger" for ours, theirs in FINGERS.items()
        },
    },
    own_frames=tuple(f"{{arm}}/{finger}_finger_link" for finger in FINGERS),
)
IIWA_14 = Counterpart(
    "kuka_iiwa_14",
    "iiwa14.xml",
    {
        "{arm}/base_link": "base",
        **{f"{{arm}}/link_{number}": f"link{number}" for number in range(1, 8)},
    },
    {f"{{arm}}/a{number}": f"joint{number}" for number in range(1, 8)},
)
COUNTERPARTS: Mapping[str, Counterpart] = {
    ALOHA.name: ALOHA_2,
    IIWA14.name: IIWA_14,
    IIWA14_BIMANUAL.name: IIWA_14,
}


def put_on(robot: Robot) -> None:
    """Hides what the bodies are drawn with that Menagerie has too, and draws its meshes in their places.

    Args:
        robot: Before its world is compiled. What Menagerie does not have, such as the KUKA's
            gripper and stand, stays.

    Raises:
        ValueError: Menagerie has no such robot; its files are not there or cannot be read; or its
            arms are others than ours.
    """
    name = robot.embodiment.name
    if name not in COUNTERPARTS:
        others = ", ".join(COUNTERPARTS)
        raise ValueError(
            f"MuJoCo Menagerie has no robot {name!r} that we know of, but {others}. Leave "
            f"robot.model away."
        )
    counterpart = COUNTERPARTS[name]
    published = PublishedModel.read(model_folder(counterpart) / counterpart.file)
    root = robot.mjcf_model
    ours = mujoco.MjModel.from_xml_string(root.to_xml_string(), root.get_assets())
    for arm in robot.embodiment.arms:
        its = counterpart.of(arm)
        for body, T_ours_theirs in _places(ours, published, its).items():
            _dress(
                root.find("body", body), T_ours_theirs, published.visuals.get(its.bodies[body], ())
            )


def model_folder(counterpart: Counterpart) -> Path:
    """Returns where the files of a model are.

    Raises:
        ValueError: They are not there, and it says what to do.
    """
    root = os.environ.get(ROOT_VARIABLE)
    if not root and util.find_spec(PACKAGE) is None:
        raise ValueError(f"The meshes of MuJoCo Menagerie are not there. {HOW}")
    folder = Path(root) / counterpart.folder if root else _fetched(counterpart.folder)
    if not (folder / counterpart.file).is_file():
        where = (
            f"MENAGERIE_ROOT is {root!r}, but"
            if root
            else "The package mujoco-menagerie is there, but"
        )
        raise ValueError(f"{where} {folder} has no {counterpart.file}. {HOW}")
    return folder


def _fetched(folder: str) -> Path:
    """Returns where the package keeps a model; the first time it fetches it."""
    package = import_module(PACKAGE)
    try:
        return Path(package.get(folder).path())
    except (package.MenagerieError, OSError) as error:
        raise ValueError(
            f"mujoco-menagerie cannot fetch {folder}: {' '.join(str(error).split())}. {HOW}"
        ) from error


def _places(
    ours: mujoco.MjModel, published: PublishedModel, counterpart: Counterpart
) -> dict[str, Matrix]:
    """Returns where their bodies are in ours (4, 4), by our names, seen from the feet.

    Raises:
        ValueError: A body or a joint is missing; or in some pose of the joints a body is not where
            ours is.
    """
    found = list(_poses(ours, published, counterpart))
    for places in found:
        for name, T in places.items():
            metres, degrees = _apart(
                found[0][name] if name in counterpart.own_frames else pose(), T
            )
            if metres > NEAR_M or degrees > NEAR_DEG:
                away = f"{1000 * metres:.1f} mm and {degrees:.1f} degrees"
                raise ValueError(
                    f"{published.path} is of other arms than ours: its body "
                    f"{counterpart.bodies[name]!r} is {away} away from "
                    f"our {name!r}; allowed: {1000 * NEAR_M:g} mm and {NEAR_DEG:g} degrees."
                )
    return found[0]


def _poses(
    ours: mujoco.MjModel, published: PublishedModel, counterpart: Counterpart
) -> Iterator[dict[str, Matrix]]:
    """Yields where their bodies are in ours, in drawn poses of the joints."""
    rng = np.random.default_rng(0)
    theirs = published.skeleton
    bodies = counterpart.bodies
    data = (mujoco.MjData(ours), mujoco.MjData(theirs))
    for name in bodies.values():
        published.demand("body", name, [theirs.body(number).name for number in range(theirs.nbody)])
    for name in counterpart.joints.values():
        published.demand(
            "joint", name, [theirs.joint(number).name for number in range(theirs.njnt)]
        )
    foot = next(iter(bodies))
    for _ in range(POSES):
        for mine, other in counterpart.joints.items():
            q = rng.uniform(*ours.joint(mine).range)
            data[0].joint(mine).qpos = q
            data[1].joint(other).qpos = q
        mujoco.mj_kinematics(ours, data[0])
        mujoco.mj_kinematics(theirs, data[1])
        T_ours = {name: _pose(data[0], name) for name in bodies}
        T_theirs = {name: _pose(data[1], other) for name, other in bodies.items()}
        T_here_there = T_ours[foot] @ inverse(T_theirs[foot])
        yield {name: inverse(T_ours[name]) @ T_here_there @ T_theirs[name] for name in bodies}


def _pose(data: mujoco.MjData, body: str) -> Matrix:
    found = data.body(body)
    return pose(found.xpos, found.xmat.reshape(3, 3))


def _apart(a: Matrix, b: Matrix) -> tuple[float, float]:
    """Returns how far two poses are from each other, in metres and degrees."""
    turn = a[:3, :3].T @ b[:3, :3]
    sine = (
        np.linalg.norm([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
        / 2
    )
    degrees = np.degrees(np.arctan2(sine, (np.trace(turn) - 1) / 2))
    return float(np.linalg.norm(a[:3, 3] - b[:3, 3])), float(degrees)


def _dress(body: mjcf.Element, T_ours_theirs: Matrix, visuals: tuple[Visual, ...]) -> None:
    """Draws meshes in place of a body's own shapes, which go on colliding."""
    for shape in body.geom:
        if shape.group == DRAWN and shape.name != STAND:
            shape.group = HIDDEN
    for visual in visuals:
        T = T_ours_theirs @ visual.T_body_mesh
        body.add(
            "geom",
            type="mesh",
            mesh=_mesh(body.root, visual),
            pos=T[:3, 3],
            quat=quaternion(T[:3, :3]),
            rgba=visual.colour,
            mass=0,
            contype=0,
            conaffinity=0,
            group=DRAWN,
        )


def _mesh(root: mjcf.RootElement, visual: Visual) -> mjcf.Element:
    """Returns the mesh of a visual, which a model has once."""
    name = f"menagerie_{visual.mesh}"
    found = root.find("mesh", name)
    if found is not None:
        return found
    frame = {"scale": visual.scale, "refpos": visual.refpos, "refquat": visual.refquat}
    # How its mass would be spread does not matter, and of a surface it can be told for sheets, too.
    return root.asset.add("mesh", name=name, file=str(visual.file), inertia="shell", **frame)
