"""MJCF of an arm with the lengths of a UR5e and position drives, with and without a gripper."""

from pathlib import Path
from typing import Any

import yaml
from tests.datasets.embodiments.robot_files import UR5E, UR5E_JOINTS

FINGER = (
    '<body name="{side}" pos="0 0 0.06" euler="0 0 {turn}"><inertial mass="0.05" pos="0 0 0" '
    'diaginertia="1e-5 1e-5 1e-5"/><joint name="{side}" type="slide" axis="0 1 0" range="0 0.04" '
    'damping="10" armature="0.1"/><geom type="box" size="0.01 0.004 0.02" pos="0 0.004 0.03"/>'
    "</body>"
)
EQUAL = '<equality><joint joint1="one" joint2="other"/></equality>'
"""The drive of one finger by a tendon is what a file has that the simulation replaces."""
GRIP = '<position name="grip" joint="one" kp="100"/>'


def arm_mjcf(*, fingers: bool = False, left_out: str = "", extra: str = "") -> str:
    """Returns MJCF; `left_out` is a joint without a drive, `extra` stands in the last link."""
    hand = ""
    if fingers:
        parts = "".join(
            FINGER.format(side=side, turn=turn)
            for side, turn in (("one", 0), ("other", 3.14159265))
        )
        hand = f'<body name="hand"><geom type="box" size="0.02 0.08 0.03"/>{parts}</body>'
    inner = f'<site name="flange"/>{hand}{extra}'
    drives = ""
    for name, xyz, rpy, limit, _, torque in reversed(UR5E):
        place, angles = (" ".join(map(str, each)) for each in (xyz, rpy))
        inner = (
            f'<body name="{name[:-6]}" pos="{place}" euler="{angles}"><inertial mass="2" '
            f'pos="0 0 0" diaginertia="0.02 0.02 0.02"/><joint name="{name}" axis="0 0 1" '
            f'range="{-limit} {limit}" armature="0.1"/><geom type="sphere" size="0.04"/>'
            f"{inner}</body>"
        )
        force = f'forcerange="{-torque} {torque}"'
        if name != left_out:
            drives = f'<position joint="{name}" kp="2000" kv="200" {force}/>{drives}'
    return (
        '<mujoco model="arm"><compiler angle="radian" autolimits="true" eulerseq="XYZ"/>'
        f'<worldbody><light pos="0 0 2"/><body name="base">{inner}</body></worldbody>'
        f"{EQUAL if fingers else ''}<actuator>{drives}{GRIP if fingers else ''}</actuator></mujoco>"
    )


def write_arm(folder: Path, *, fingers: bool = False, model: str | None = None, **arm: Any) -> Path:
    """Writes an arm with its embodiment file, whose path is returned; `arm` changes its entries."""
    (folder / "arm.xml").write_text(arm_mjcf(fingers=fingers) if model is None else model)
    gripper = {"joint": "one", "closed": 0.0, "open": 0.04} if fingers else {"name": "gripper"}
    part = {
        "base": "base",
        "tcp": "flange",
        "tcp_offset": {"position_m": [0, 0, 0.09 if fingers else 0.0]},
        "forward": "z",
        "gripper": gripper,
        "home": dict(zip(UR5E_JOINTS, (3.14, -1.57, 1.57, -1.57, -1.57, 0.0), strict=True)),
        **arm,
    }
    file = folder / "my_arm.yaml"
    file.write_text(yaml.safe_dump({"name": "bench", "model": "arm.xml", "arms": {"arm": part}}))
    return file
