"""A small copy of MuJoCo Menagerie's folders: the published kinematics, with boxes for meshes."""

import struct
from itertools import product
from pathlib import Path

Corner = tuple[float, float, float]

ALOHA_PARTS = {  # In millimetres, as the collection's own files, except for those of the gripper.
    "base": ((-150, -75, 0), (100, 75, 79)),
    "shoulder": ((-60, -50, -3), (60, 60, 61)),
    "upper_arm": ((-16, -50, 0), (73, 52, 321)),
    "upper_forearm": ((0, -51, -19), (200, 51, 19)),
    "lower_forearm": ((0, -30, -23), (114, 45, 23)),
    "wrist": ((0, -27, -20), (70, 27, 35)),
}
GRIPPER_PARTS = {  # In metres.
    "prop": ((-0.07, -0.02, -0.03), (0.07, 0.02, 0.0)),
    "camera": ((-0.02, -0.02, -0.01), (0.02, 0.02, 0.012)),
    "finger_left": ((-0.01, -0.08, 0.0), (0.03, 0.0, 0.02)),
    "finger_right": ((-0.01, 0.0, 0.0), (0.03, 0.09, 0.02)),
}
KUKA_PARTS = {
    "link_0": ((-0.15, -0.1, 0.0), (0.1, 0.1, 0.15)),
    "link_1": ((-0.07, -0.12, -0.08), (0.07, 0.07, 0.2)),
    "link_2_orange": ((-0.09, 0.0, -0.05), (0.09, 0.2, 0.07)),
    "link_2_grey": ((-0.05, 0.1, 0.0), (0.05, 0.25, 0.09)),
    "link_3": ((-0.07, -0.01, -0.05), (0.07, 0.09, 0.2)),
    "band": ((-0.08, -0.02, 0.1), (0.08, 0.05, 0.11)),
    "link_4": ((-0.06, -0.05, -0.05), (0.06, 0.2, 0.08)),
    "link_5": ((-0.05, -0.04, -0.03), (0.05, 0.09, 0.2)),
    "link_6": ((-0.06, -0.07, -0.07), (0.06, 0.08, 0.06)),
    "link_7": ((-0.03, -0.04, -0.02), (0.04, 0.05, 0.045)),
}

ALOHA = """<mujoco model="aloha">
  <compiler angle="radian" meshdir="assets" autolimits="true"/>
  <asset>
    <material name="black" rgba="0.15 0.15 0.15 1"/>
    {meshes}
  </asset>
  <default>
    <default class="vx300s">
      <joint axis="0 1 0"/>
      <default class="finger"><joint type="slide" axis="0 0 -1" range="0 0.041"/></default>
      <default class="visual"><geom type="mesh" contype="0" conaffinity="0" density="0" group="2"
        material="black"/></default>
      <default class="collision"><geom type="mesh" group="3"/></default>
    </default>
  </default>
  <worldbody>
    <light pos="0 0 2"/>
    {arms}
  </worldbody>
  <include file="joint_position_actuators.xml"/>
</mujoco>
"""
ALOHA_ARM = """
<body name="{arm}/base_link" childclass="vx300s" {place}>
 <geom quat="1 0 0 1" class="visual" mesh="base"/>
 <geom quat="1 0 0 1" class="collision" mesh="base"/>
 <body name="{arm}/shoulder_link" pos="0 0 0.079">
 <joint name="{arm}/waist" axis="0 0 1" range="-3.14158 3.14158"/>
  <geom pos="0 0 -0.003" quat="1 0 0 1" class="visual" mesh="shoulder"/>
  <geom class="collision" mesh="shoulder"/>
  <body name="{arm}/upper_arm_link" pos="0 0 0.04805">
  <joint name="{arm}/shoulder" range="-1.85005 1.25664"/>
   <geom quat="1 0 0 1" class="visual" mesh="upper_arm"/> <geom class="collision" mesh="upper_arm"/>
   <body name="{arm}/upper_forearm_link" pos="0.05955 0 0.3">
   <joint name="{arm}/elbow" range="-1.76278 1.6057"/>
    <geom class="visual" mesh="upper_forearm"/> <geom class="collision" mesh="upper_forearm"/>
    <body name="{arm}/lower_forearm_link" pos="0.2 0 0">
    <joint name="{arm}/forearm_roll" axis="1 0 0" range="-3.1 3.1"/>
     <geom quat="0 1 0 0" class="visual" mesh="lower_forearm"/>
     <geom class="collision" mesh="lower_forearm"/>
     <body name="{arm}/wrist_link" pos="0.1 0 0">
     <joint name="{arm}/wrist_angle" range="-1.8675 2.23402"/>
      <geom euler="0 0 1.5707963" class="visual" mesh="wrist"/>
      <geom class="collision" mesh="wrist"/>
      <body name="{arm}/gripper_link" pos="0.069744 0 0">
      <joint name="{arm}/wrist_rotate" axis="1 0 0" range="-3.1 3.1"/>
       <geom class="collision" type="capsule" size="0.02" fromto="0 0 0 0.03 0 0"/>
       <site name="{arm}/gripper" pos="0.15 0 0"/>
       <body name="{arm}/gripper_base" euler="0 1.57 -1.57" pos="0.035 0 0">
        <geom class="visual" mesh="prop"/> <geom class="collision" mesh="prop"/>
        <geom class="visual" pos="0 -0.0824748 -0.0095955" quat="0 0 -0.21644 -0.976296"
          mesh="camera" rgba="0.7 0.7 0.7 1"/>
        <body name="{arm}/left_finger_link" pos="0.0191 -0.0141637 0.0211727" quat="1 -1 -1 1">
         <joint name="{arm}/left_finger" class="finger"/>
         <geom pos="0.0141637 0.0211727 0.06" quat="1 1 1 -1" class="visual" mesh="finger_left"/>
         <geom pos="0.0141637 0.0211727 0.06" quat="1 1 1 -1" class="collision" mesh="finger_left"/>
        </body>
        <body name="{arm}/right_finger_link" pos="-0.0191 -0.0141637 0.0211727" quat="1 1 1 1">
         <joint name="{arm}/right_finger" class="finger"/>
         <geom pos="0.0141637 -0.0211727 0.0597067" quat="1 -1 -1 -1" class="visual"
           mesh="finger_right"/>
         <geom pos="0.0141637 -0.0211727 0.0597067" quat="1 -1 -1 -1" class="collision"
           mesh="finger_right"/>
        </body>
       </body>
      </body>
     </body>
    </body>
   </body>
  </body>
 </body>
</body>
"""
KUKA = """<mujoco model="iiwa14">
  <compiler angle="radian" meshdir="assets" autolimits="true"/>
  <option integrator="implicitfast"/>
  <default>
    <default class="iiwa">
      <joint axis="0 0 1" range="-2.9 2.9"/>
      <default class="visual"><geom type="mesh" contype="0" conaffinity="0" group="2"
        material="gray"/></default>
      <default class="collision"><geom group="3"/></default>
    </default>
  </default>
  <asset>
    <material name="gray" rgba="0.4 0.4 0.4 1"/>
    <material name="orange" rgba="1 0.423529 0.0392157 1"/>
    {meshes}
  </asset>
  <worldbody>
    <body name="base" childclass="iiwa">
     <geom class="visual" mesh="link_0"/> <geom class="collision" size="0.12" pos="0 0 0.03"/>
     <body name="link1" pos="0 0 0.1575"> <joint name="joint1"/>
      <geom class="visual" mesh="link_1"/> <geom class="collision" size="0.08"/>
      <body name="link2" pos="0 0 0.2025" quat="0 0 1 1"> <joint name="joint2"/>
      <geom class="collision" size="0.09"/>
       <geom class="visual" material="orange" mesh="link_2_orange"/>
       <geom class="visual" mesh="link_2_grey"/>
       <body name="link3" pos="0 0.2045 0" quat="0 0 1 1"> <joint name="joint3"/>
        <geom class="visual" mesh="link_3"/> <geom class="visual" mesh="band"/>
        <geom class="collision" size="0.07"/>
        <body name="link4" pos="0 0 0.2155" quat="1 1 0 0"> <joint name="joint4"/>
         <geom class="visual" mesh="link_4"/> <geom class="collision" size="0.07"/>
         <body name="link5" pos="0 0.1845 0" quat="0 0 1 1"> <joint name="joint5"/>
          <geom class="visual" mesh="link_5"/> <geom class="visual" mesh="band"/>
          <geom class="collision" size="0.07"/>
          <body name="link6" pos="0 0 0.2155" quat="1 1 0 0"> <joint name="joint6"/>
           <geom class="visual" mesh="link_6"/> <geom class="collision" size="0.08"/>
           <body name="link7" pos="0 0.081 0" quat="0 0 1 1">
           <joint name="joint7" range="-3.05433 3.05433"/>
            <geom class="visual" mesh="link_7"/> <geom class="collision" size="0.06"/>
           </body>
          </body>
         </body>
        </body>
       </body>
      </body>
     </body>
    </body>
  </worldbody>
</mujoco>
"""


def write_menagerie(root: Path) -> None:
    """Makes the folders of both arms."""
    write_aloha(root / "aloha")
    write_kuka(root / "kuka_iiwa_14")


def write_aloha(folder: Path) -> None:
    (folder / "assets").mkdir(parents=True)
    for name, corners in {**ALOHA_PARTS, **GRIPPER_PARTS}.items():
        write_stl(folder / "assets" / f"{name}.stl", *corners)
    meshes = [f'<mesh file="{name}.stl" scale="0.001 0.001 0.001"/>' for name in ALOHA_PARTS]
    meshes += [f'<mesh file="{name}.stl"/>' for name in GRIPPER_PARTS]
    places = {"left": 'pos="-0.469 -0.019 0.02"', "right": 'pos="0.469 -0.019 0.02" quat="0 0 0 1"'}
    arms = "".join(ALOHA_ARM.format(arm=arm, place=place) for arm, place in places.items())
    (folder / "aloha.xml").write_text(ALOHA.format(meshes=" ".join(meshes), arms=arms))
    drives = "".join(f'<position joint="{arm}/waist" kp="43"/>' for arm in places)
    (folder / "joint_position_actuators.xml").write_text(
        f"<mujoco><actuator>{drives}</actuator></mujoco>"
    )


def write_kuka(folder: Path) -> None:
    (folder / "assets").mkdir(parents=True)
    for name, corners in KUKA_PARTS.items():
        write_obj(folder / "assets" / f"{name}.obj", *corners)
    meshes = [f'<mesh file="{name}.obj"/>' for name in KUKA_PARTS if name != "link_7"]
    meshes.append('<mesh file="link_7.obj" refpos="0.01 0 0.02" refquat="1 0 0 1"/>')
    (folder / "iiwa14.xml").write_text(KUKA.format(meshes=" ".join(meshes)))


def box(low: Corner, high: Corner) -> tuple[list[Corner], list[tuple[int, int, int]]]:
    """Returns the corners and the triangles of a box."""
    corners: list[Corner] = [(x, y, z) for x, y, z in product(*zip(low, high, strict=True))]
    squares = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, [triangle for a, b, c, d in squares for triangle in ((a, b, c), (a, c, d))]


def write_stl(file: Path, low: Corner, high: Corner) -> None:
    corners, triangles = box(low, high)
    rows = [
        struct.pack("<12fH", 0, 0, 0, *(value for place in three for value in corners[place]), 0)
        for three in triangles
    ]
    file.write_bytes(bytes(80) + struct.pack("<I", len(rows)) + b"".join(rows))


def write_obj(file: Path, low: Corner, high: Corner) -> None:
    corners, triangles = box(low, high)
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [
        f"f {a + 1} {b + 1} {c + 1}" for a, b, c in triangles
    ]
    file.write_text("\n".join(lines) + "\n")
