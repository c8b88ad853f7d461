"""The capsules of the safety filter contain the published meshes of the arms.

Those of gym-aloha are installed with the tests; those of MuJoCo Menagerie are read from the folder
`MENAGERIE_ROOT`, without which their test is skipped.
"""

import os
from dataclasses import replace
from importlib import util
from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, IIWA14, Embodiment, pose
from stringline.datasets.embodiments.embodiment import CapsuleMount
from stringline.datasets.embodiments.transforms import inverse
from stringline.real_robot.safety.clearance import Clearance

Vector = NDArray[np.float64]
# Link by the end of the name of a body. Fingers are drawn at a travel of 0, and move along y.
ALOHA_LINKS = {
    "base_link": -1,
    "shoulder_link": 0,
    "upper_arm_link": 1,
    "upper_forearm_link": 2,
    "lower_forearm_link": 3,
    "wrist_link": 4,
    "gripper_link": 5,
}
FINGERS = {"gripper_base": 0.0, "left_finger_link": -0.0078, "right_finger_link": 0.0078}
IIWA_LINKS = {"base": -1, **{f"link{number}": number - 1 for number in range(1, 8)}}
POSES = 10
ROUNDING_M = 2e-4


def meshes(file: Path, links: dict[str, int], prefix: str) -> dict[int, Vector]:
    """Returns the vertices (N, 3) of the meshes of each link, in the frame of the link."""
    model = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    found: dict[int, list[Vector]] = {}
    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_MESH):
        name = model.body(model.geom_bodyid[geom]).name.removeprefix(prefix)
        owner = "gripper_link" if name in FINGERS else name
        if owner in links:
            first = model.mesh_vertadr[mesh := model.geom_dataid[geom]]
            vertices = model.mesh_vert[first : first + model.mesh_vertnum[mesh]]
            T_link_mesh = inverse(placed(data.body(prefix + owner))) @ placed(data.geom(geom))
            moved = vertices @ T_link_mesh[:3, :3].T + T_link_mesh[:3, 3]
            moved[:, 1] += FINGERS.get(name, 0.0)
            found.setdefault(links[owner], []).append(moved)
    return {link: np.concatenate(parts) for link, parts in found.items()}


def placed(thing: "mujoco._structs._MjDataBodyViews | mujoco._structs._MjDataGeomViews") -> Vector:
    """Returns the pose (4, 4) of a body or geom."""
    return pose(thing.xpos, thing.xmat.reshape(3, 3))


def outside(body: Embodiment, vertices: dict[int, Vector]) -> dict[int, float]:
    """Returns how far meshes stick out of the capsules of their links and the next ones, metres."""
    mounts: tuple[CapsuleMount, ...] = Clearance(body).mounts[0]
    enclosed, worst = replace(body, capsule_mounts=mounts), dict.fromkeys(vertices, -np.inf)
    random = np.random.default_rng(0)
    for _ in range(POSES):
        q = random.uniform(body.lower, body.upper)
        q[body.grippers[body.arms[0]]] = 0.0
        axes = enclosed.capsule_axes(q)[0]
        links = body.link_poses(body.chains[0], q)
        for link, points in vertices.items():
            T_base_link = links[link + 1]
            near = [i for i, mount in enumerate(mounts) if abs(mount.link - link) <= 2]
            there = points @ T_base_link[:3, :3].T + T_base_link[:3, 3]
            out = [to_axis(there, axes[i]) - mounts[i].radius for i in near]
            worst[link] = max(worst[link], float(np.min(out, axis=0).max()))
    return worst


def to_axis(points: Vector, axis: Vector) -> Vector:
    """Returns the distances (N,) of points (N, 3) from a segment (2, 3)."""
    along = axis[1] - axis[0]
    share = np.clip((points - axis[0]) @ along / max(along @ along, 1e-18), 0.0, 1.0)
    distance: Vector = np.linalg.norm(points - axis[0] - share[:, None] * along, axis=1)
    return distance


def test_capsules_contain_the_viperx_of_gym_aloha() -> None:
    pytest.importorskip("gym_aloha")
    found = util.find_spec("gym_aloha")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / "assets" / "bimanual_viperx_transfer_cube.xml"
    links = {name: link for name, link in ALOHA_LINKS.items() if name != "gripper_link"}
    vertices = meshes(file, links, "vx300s_left/")
    assert set(vertices) == {0, 1, 2, 3, 4} | ({-1} & set(vertices))
    assert max(outside(ALOHA, vertices).values()) <= ROUNDING_M
    bare = replace(ALOHA, enclosing_mounts=())
    assert outside(bare, vertices)[1] == pytest.approx(0.0126, abs=1e-3)
    assert outside(bare, vertices)[2] == pytest.approx(0.0074, abs=1e-3)


@pytest.mark.skipif("MENAGERIE_ROOT" not in os.environ, reason="no folder with MuJoCo Menagerie")
@pytest.mark.parametrize(
    ("body", "file", "links", "prefix"),
    [
        (ALOHA, "aloha/aloha.xml", ALOHA_LINKS, "left/"),
        (IIWA14, "kuka_iiwa_14/iiwa14.xml", IIWA_LINKS, ""),
    ],
    ids=["aloha", "iiwa14"],
)
def test_capsules_contain_the_meshes_of_menagerie(
    body: Embodiment, file: str, links: dict[str, int], prefix: str
) -> None:
    vertices = meshes(Path(os.environ["MENAGERIE_ROOT"]) / file, links, prefix)
    assert set(vertices) == set(links.values())
    assert max(outside(body, vertices).values()) <= ROUNDING_M


@pytest.mark.parametrize("body", [ALOHA, IIWA14], ids=["aloha", "iiwa14"])
def test_a_capsule_contains_each_wrist_camera(body: Embodiment) -> None:
    """A RealSense D405 is 42 x 42 x 23 mm; the frame of the camera is at its front glass."""
    corners = np.array(
        [[x, y, z, 1] for x in (-0.021, 0.021) for y in (-0.021, 0.021) for z in (0.0, -0.023)]
    )
    clearance = Clearance(body)
    for place, arm in enumerate(body.arms):
        mounts = clearance.mounts[place]
        axes = replace(body, capsule_mounts=mounts).capsule_axes(body.home)[place]
        T_base_gripper = body.forward_kinematics(body.home)[arm]
        for mount in body.cameras:
            if mount.parent == arm:
                points = (corners @ (T_base_gripper @ mount.T_parent_camera).T)[:, :3]
                out = [
                    to_axis(points, axis) - one.radius
                    for axis, one in zip(axes, mounts, strict=True)
                ]
                assert np.min(out, axis=0).max() <= 0
