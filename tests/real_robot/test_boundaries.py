"""Who may open a port, and what the processes beside the policy do not import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stringline

ROOM = Path(__file__).parents[2] / "real_robot"
LIGHT = [
    "drivers.dynamixel.aloha",
    "safety",
    "sampler",
    "device_process",
    "device_worker",
    "emulators.aloha",
    "emulators.client",
    "bridge",
    "deploy",
]
# Names whose use means that a device is opened: what opens files by descriptor, terminals, and foreign drivers.
OPENERS = {"termios", "serial", "dynamixel_sdk", "lcm", "pyrealsense2"}


def test_only_the_bus_opens_ports() -> None:
    users = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            opens = isinstance(node, ast.Attribute) and node.attr == "open" and isinstance(node.value, ast.Name)
            if opens and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                users.add(path.relative_to(ROOM).as_posix())
            if any(name.split(".")[0] in OPENERS for name in imported):
                users.add(path.relative_to(ROOM).as_posix())
    assert users == {"drivers/dynamixel/bus.py"}


def test_only_the_device_process_connects_a_driver() -> None:
    callers = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("connect", "write")
                and "driver" in ast.unparse(node.value).lower()
            ):
                callers.add(path.name)
    assert callers == {"device_worker.py", "device_loop.py"}


@pytest.mark.parametrize("module", LIGHT)
def test_it_imports_neither_torch_nor_mujoco(module: str) -> None:
    root = str(Path(stringline.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {root!r}); import stringline.real_robot.{module}; "
    script += "print([name for name in ('torch', 'mujoco', 'dm_control') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
