"""Who may open a port, and what the processes beside the policy do not import."""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stringline

ROOM = Path(__file__).parents[2] / "real_robot"
LIGHT = [
    "drivers.dynamixel.aloha_driver",
    "drivers.fri.fri_driver",
    "drivers.lcm.lcm_driver",
    "safety.filter",
    "device.device_process",
    "device.device_worker",
    "emulators.emulate",
    "emulators.program.emulator_client",
    "recording.observation_bridge",
    "deploy",
]
# Names whose use means that a device is opened: what opens files by descriptor, terminals, and
# foreign drivers.
OPENERS = {"termios", "serial", "dynamixel_sdk", "lcm", "pyrealsense2"}


@pytest.mark.slow
def test_only_the_bus_opens_ports() -> None:
    users = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            opens = (
                isinstance(node, ast.Attribute)
                and node.attr == "open"
                and isinstance(node.value, ast.Name)
            )
            if (
                opens
                and isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
            ):
                users.add(path.relative_to(ROOM).as_posix())
            if any(name.split(".")[0] in OPENERS for name in imported):
                users.add(path.relative_to(ROOM).as_posix())
    # The line of an external stop or pedal is only read, and a camera moves nothing.
    assert users == {
        "cameras/video_camera.py",
        "drivers/dynamixel/bus.py",
        "operator/input_line.py",
    }


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


def uses(folder: Path, wanted: Callable[[ast.AST], bool]) -> set[str]:
    """Returns the files of a folder in whose syntax tree something wanted is found."""
    trees = {
        path.relative_to(folder).as_posix(): ast.parse(path.read_text())
        for path in folder.rglob("*.py")
    }
    return {name for name, tree in trees.items() if any(wanted(node) for node in ast.walk(tree))}


def imports(node: ast.AST, *modules: str) -> bool:
    """Says whether a node imports one of these modules, or from one of them."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return any(
        name == module or name.startswith(module + ".") for name in names for module in modules
    )


def calls(node: ast.AST, *names: str) -> bool:
    """Says whether a node names one of these attributes of a module, such as `os.write`."""
    return isinstance(node, ast.Attribute) and ast.unparse(node) in names


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["datasets", "encoders", "policies", "sim"])
def test_no_other_folder_opens_devices(folder: str) -> None:
    assert uses(ROOM.parent / folder, lambda node: imports(node, *OPENERS, "pty", "tty")) == set()


@pytest.mark.slow
def test_only_drivers_know_the_bus_and_the_replay_of_logs_into_emulators() -> None:
    users = uses(ROOM, lambda node: imports(node, "stringline.real_robot.drivers.dynamixel.bus"))
    assert {name for name in users if not name.startswith("drivers/dynamixel/")} <= {
        "replay/incident_replay.py"
    }
    assert not any(
        uses(ROOM.parent / folder, lambda node: imports(node, "stringline.real_robot"))
        for folder in ("datasets", "encoders", "policies", "sim")
    )


@pytest.mark.slow
def test_only_the_bus_and_the_far_end_write_to_descriptors() -> None:
    writers = (
        "os.write",
        "os.writev",
        "os.pwrite",
        "os.fdopen",
        "os.sendfile",
        "os.open",
        "os.openpty",
    )
    assert uses(ROOM, lambda node: calls(node, *writers)) == {
        "cameras/video_camera.py",  # Settings of the camera, by its control calls.
        "drivers/dynamixel/bus.py",
        "operator/input_line.py",  # It only reads.
        "emulators/dynamixel/servo_server.py",
    }


def writes_a_file(node: ast.AST) -> bool:
    """Returns whether a node opens a path for writing, or writes one: ports are paths as well."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    if name != "open":
        return name in ("write_bytes", "write_text", "tofile", "memmap", "save")
    modes = [
        value
        for value in (*node.args, *(more.value for more in node.keywords if more.arg == "mode"))
    ]
    words = [
        mode.value
        for mode in modes
        if isinstance(mode, ast.Constant) and isinstance(mode.value, str)
    ]
    return any(set(word) <= set("rwabx+t") and set(word) & set("wax+") for word in words)


@pytest.mark.slow
def test_files_are_written_where_their_names_are_no_ports() -> None:
    """Captures, logs, tables, trajectories, poses of a calibration, and recordings (.rrd)."""
    assert uses(ROOM, writes_a_file) == {
        "calibration/calibration_session.py",
        "device/dry_run.py",
        "emulators/plants/plant.py",
        "emulators/program/capture_file.py",
        "incidents/incident_recorder.py",
        "deployment/live_view.py",
    }


@pytest.mark.slow
def test_only_links_and_their_emulators_use_udp() -> None:
    wanted = ("socket.SOCK_DGRAM", "socket.SOCK_RAW")
    assert uses(ROOM, lambda node: calls(node, *wanted)) == {
        "drivers/fri/fri_link.py",
        "drivers/lcm/lcm_link.py",
        "emulators/fri/fri_server.py",
        "emulators/program/emulator_server.py",
    }
    users = uses(ROOM, lambda node: imports(node, "stringline.real_robot.drivers.fri.fri_link"))
    assert users == {
        "drivers/fri/fri_arm.py",
        "drivers/fri/fri_driver.py",
        "replay/incident_replay.py",
    }
    users = uses(ROOM, lambda node: imports(node, "stringline.real_robot.drivers.lcm.lcm_link"))
    assert all(
        name.startswith(("drivers/lcm/", "drivers/grippers/", "emulators/")) for name in users
    )


@pytest.mark.slow
def test_a_device_process_uses_only_the_monotonic_clock() -> None:
    wall = ("time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "time.localtime")
    users = uses(
        ROOM,
        lambda node: (
            calls(node, *wall) or (imports(node, "time.time") and isinstance(node, ast.ImportFrom))
        ),
    )
    inside = (
        "drivers/",
        "stages/",
        "device_",
        "safety",
        "sampler",
        "mailbox",
        "limiter",
        "incident_log",
        "incident_ring",
    )
    assert {name for name in users if name.startswith(inside)} == set()


@pytest.mark.parametrize("module", LIGHT)
def test_it_imports_neither_torch_nor_dm_control(module: str) -> None:
    root = str(Path(stringline.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {root!r}); import stringline.real_robot.{module}; "
    script += "print([name for name in ('torch', 'dm_control') if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
