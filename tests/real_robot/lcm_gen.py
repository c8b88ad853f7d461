"""Drake's types of LCM as classes of its own compiler: the reference for our codec."""

import importlib.util
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

# As Drake publishes them.
DEFINITIONS = {
    "lcmt_iiwa_command": "int64_t utime; int32_t num_joints; "
    "double joint_position[num_joints]; int32_t num_torques; "
    "double joint_torque[num_torques];",
    "lcmt_iiwa_status": "int64_t utime; int32_t num_joints; "
    "double joint_position_measured[num_joints]; "
    "double joint_velocity_estimated[num_joints]; double joint_position_commanded[num_joints]; "
    "double joint_position_ipo[num_joints]; double joint_torque_measured[num_joints]; "
    "double joint_torque_commanded[num_joints]; double joint_torque_external[num_joints];",
    "lcmt_iiwa_status_telemetry": (
        "int64_t host_utime; int64_t iiwa_utime; int64_t estimated_dt_host_minus_iiwa;"
    ),
    "lcmt_schunk_wsg_command": "int64_t utime; double target_position_mm; double force;",
    "lcmt_schunk_wsg_status": (
        "int64_t utime; double actual_position_mm; double actual_force; double "
        "actual_speed_mm_per_s;"
    ),
}


def generated(names: Collection[str], folder: Path) -> dict[str, Any]:
    """Returns lcm-gen's classes of some of the types, by name; it writes them into the folder."""
    file = folder / "types.lcm"
    file.write_text(
        "package drake;\n" + "".join(f"struct {name} {{ {DEFINITIONS[name]} }}\n" for name in names)
    )
    program = Path(sys.executable).with_name("lcm-gen")
    subprocess.run(
        [program, "--python", "--ppath", str(folder), str(file)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    found = {}
    for name in names:
        spec = importlib.util.spec_from_file_location(
            f"made_{name}", folder / "drake" / f"{name}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[name] = getattr(module, name)
    return found
