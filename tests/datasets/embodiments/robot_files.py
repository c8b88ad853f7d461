"""URDF and MJCF files of arms with published lengths, and a mesh, for tests."""

import struct
from itertools import product
from pathlib import Path

# Universal Robots UR5e: name of joint, place and angles in the parent link, limit, speed, torque.
UR5E = (
    ("shoulder_pan_joint", (0, 0, 0.1625), (0, 0, 0), 6.2832, 3.14, 150),
    ("shoulder_lift_joint", (0, 0, 0), (1.570796327, 0, 0), 6.2832, 3.14, 150),
    ("elbow_joint", (-0.425, 0, 0), (0, 0, 0), 3.1416, 3.14, 150),
    ("wrist_1_joint", (-0.3922, 0, 0.1333), (0, 0, 0), 6.2832, 3.14, 28),
    ("wrist_2_joint", (0, -0.0997, 0), (1.570796327, 0, 0), 6.2832, 3.14, 28),
    ("wrist_3_joint", (0, 0.0996, 0), (1.570796327, 3.141592654, 3.141592654), 6.2832, 3.14, 28),
)
UR5E_JOINTS = tuple(name for name, *_ in UR5E)
HOME = (-1.57, -1.57, 1.57, -1.57, -1.57, 0.0)


def ur5e_urdf(mesh: str | None = None, *, fingers: bool = False, prefix: str = "") -> str:
    """Returns a URDF of a UR5e with a box or a mesh at each link, and the frame tool0."""
    shape = '<box size="0.1 0.1 0.1"/>' if mesh is None else f'<mesh filename="{mesh}"/>'
    solid = f"<collision><geometry>{shape}</geometry></collision>"
    lines = [f'<link name="{prefix}base_link">{solid}</link>']
    parent = f"{prefix}base_link"
    for number, (name, xyz, rpy, limit, speed, torque) in enumerate(UR5E, 1):
        link = f"{prefix}link_{number}"
        lines.append(f'<link name="{link}">{solid}</link>')
        lines.append(_joint(prefix + name, "revolute", (parent, link), xyz, rpy, (0, 0, 1)))
        limits = f'lower="{-limit}" upper="{limit}" velocity="{speed}" effort="{torque}"'
        lines[-1] = lines[-1].replace("</joint>", f"<limit {limits}/></joint>")
        parent = link
    lines.append(f'<link name="{prefix}tool0"/>')
    lines.append(_joint(f"{prefix}flange", "fixed", (parent, f"{prefix}tool0")))
    if fingers:
        lines += _fingers(f"{prefix}tool0", prefix)
    return "\n".join(lines)


def robot(*parts: str) -> str:
    """Returns a URDF of links and joints."""
    return f'<robot name="test">{"".join(parts)}</robot>'


def write_ur5e(path: Path, mesh: str | None = None, *, fingers: bool = False) -> Path:
    """Writes the URDF of a UR5e."""
    path.write_text(robot(ur5e_urdf(mesh, fingers=fingers)))
    return path


def _joint(
    name: str,
    kind: str,
    links: tuple[str, str],
    xyz: tuple[float, ...] = (0, 0, 0),
    rpy: tuple[float, ...] = (0, 0, 0),
    axis: tuple[float, ...] = (1, 0, 0),
) -> str:
    numbers = (" ".join(map(str, each)) for each in (xyz, rpy, axis))
    place, angles, way = numbers
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{links[0]}"/><child link="{links[1]}"/>'
        f'<origin xyz="{place}" rpy="{angles}"/><axis xyz="{way}"/></joint>'
    )


def _fingers(hand: str, prefix: str) -> list[str]:
    """Returns two fingers of 5 cm along z that open by 4 cm each along y, one following."""
    lines = []
    box = '<geometry><box size="0.02 0.01 0.05"/></geometry>'
    for side, sign in (("left", 1), ("right", -1)):
        link = f"{prefix}{side}_finger"
        place = f'<origin xyz="0 {0.005 * sign} 0.025"/>'
        lines.append(f'<link name="{link}"><collision>{place}{box}</collision></link>')
        joint = _joint(f"{link}_joint", "prismatic", (hand, link), (0, 0, 0.1), axis=(0, sign, 0))
        limit = '<limit lower="0" upper="0.04" velocity="1" effort="20"/>'
        mimic = f'<mimic joint="{prefix}left_finger_joint"/>' if sign < 0 else ""
        lines.append(joint.replace("</joint>", f"{limit}{mimic}</joint>"))
    return lines


def write_box_mesh(path: Path, low: float = -0.05, high: float = 0.05) -> None:
    """Writes a cube as a binary STL file."""
    corners = list(product((low, high), repeat=3))
    faces = (
        (0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1),
        (2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3),
    )  # fmt: skip
    rows = [
        struct.pack("<12fH", 0, 0, 0, *(value for corner in face for value in corners[corner]), 0)
        for face in faces
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(80) + struct.pack("<I", len(faces)) + b"".join(rows))


# A lift, two revolute joints in one body with an anchor beside its origin, a reference angle,
# turned bodies.
ODD_ARM = """<mujoco model="odd">
  <compiler angle="degree" autolimits="true"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="table" pos="0 1 0"><geom type="box" size="0.4 0.4 0.02"/></body>
    <body name="foot" pos="0.1 0.2 0.3" euler="10 20 30">
      <geom type="cylinder" size="0.05 0.05"/>
      <body name="lift" pos="0 0 0.1">
        <joint name="lift" type="slide" axis="0 0 1" range="0 0.5"/>
        <geom type="box" size="0.03 0.03 0.03"/>
        <body name="shoulder" pos="0.1 0 0" euler="0 45 0">
          <joint name="one" axis="0 1 1" pos="0.02 0.01 0" range="-90 90"/>
          <joint name="two" axis="1 0 0" pos="0 0 0.03" range="-120 60"/>
          <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
          <body name="elbow" pos="0.3 0 0">
            <joint name="three" axis="0 0 1" range="-170 170" ref="30"/>
            <geom type="ellipsoid" size="0.05 0.03 0.02"/>
            <body name="mount" pos="0.05 0 0" euler="90 0 0">
              <site name="grasp" pos="0.1 0 0" euler="0 0 15"/>
              <body name="jaw" pos="0.05 0 0.02">
                <joint name="jaw" axis="0 1 0" range="-10 60"/>
                <geom type="box" size="0.03 0.01 0.005" pos="0.03 0 0"/>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><position joint="one" forcerange="-7 7"/></actuator>
  <keyframe><key name="home" qpos="0.2 0.3 -0.4 0.5 0"/></keyframe>
</mujoco>"""
