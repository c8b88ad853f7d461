"""The incident log of a device process: the wire, a full disk, a stopped recorder, deaths."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stringline
from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incident import IncidentTable
from stringline.real_robot.incidents.incident_log import Incident
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.incidents.incident_records import Kind
from stringline.real_robot.replay.incident_replay import replay
from stringline.real_robot.safety.reasons import Mode

PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)

OWNER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.safety.limits import SafetyLimits
driver = AlohaDriver({ports!r}, bus_watchdog_s=0.0, answer_timeout_s=0.2)
device = DeviceProcess(driver, ALOHA, SafetyLimits.of(ALOHA), log=LogPlan(Path({folder!r})))
device.connect()
device.arm()
device.begin()
time.sleep(0.3)
print("armed", flush=True)
time.sleep(60)
"""


def process(emulator: Emulator, plan: LogPlan, *, lock_step: bool = False) -> DeviceProcess:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    return DeviceProcess(driver, ALOHA, LIMITS, lock_step=lock_step, log=plan)


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def chunk(start: float, by: float) -> ActionChunk:
    target = ALOHA.home.copy()
    target[0] += by
    due = start + 0.02 * np.arange(40, dtype=np.float64)
    return ActionChunk(due, np.tile(target, (40, 1)).astype(np.float32))


def raw(incident: Incident, kind: Kind, source: int) -> bytes:
    return b"".join(
        entry.payload for entry in incident.entries if (entry.kind, entry.source) == (kind, source)
    )


@pytest.mark.slow
def test_every_byte_is_kept_and_emulated_arms_answer_it_again(
    waiting_emulator: Emulator, tmp_path: Path
) -> None:
    plan = LogPlan(tmp_path / "logs", {"configuration": {"seed": 3}}, everything=True)
    with process(waiting_emulator, plan, lock_step=True) as device:
        device.connect()
        device.arm()
        waiting_emulator.begin(3)
        device.begin()
        for cycle in range(60):
            device.observe(cycle * PERIOD)
            if cycle % 20 == 0:
                device.send(chunk(cycle * PERIOD, by=0.1 + cycle * 0.005))
            state = device.act()
            waiting_emulator.advance(dict(zip(device.arms, state.writes.tolist(), strict=True)))
    (path,) = (tmp_path / "logs").iterdir()
    incident = Incident.open(path)
    assert not incident.damage
    assert incident.missing == 0
    assert incident.ended["lost"] == 0
    assert incident.header["configuration"] == {"seed": 3}
    for source, arm in enumerate(ALOHA.arms):
        assert raw(incident, Kind.SENT, source) == (tmp_path / f"{arm}.bin").read_bytes()
    assert len(incident.cycles) == 60
    assert [int(record["chunk"]) for _, record in incident.cycles[::20]] == [1, 2, 3]
    assert float(incident.cycles[0][1]["target"][0]) == np.float32(ALOHA.home[0] + 0.1)
    assert abs(float(incident.cycles[-1][1]["state"]["position"][0])) > 0.01
    with Emulator(plant="first_order", lock_step=True) as fresh:
        result = replay(incident, fresh, seed=3)
    assert result.difference == ""
    assert result.sent == sum(len(raw(incident, Kind.SENT, source)) for source in (0, 1))
    assert result.equal == sum(len(raw(incident, Kind.RECEIVED, source)) for source in (0, 1))
    _answered_otherwise(incident)


def _answered_otherwise(incident: Incident) -> None:
    """Changes one recorded answer, and expects the replay to find it."""
    at = [index for index, entry in enumerate(incident.entries) if entry.kind == Kind.RECEIVED][40]
    entry = incident.entries[at]
    changed = list(incident.entries)
    changed[at] = replace(entry, payload=entry.payload[:-1] + bytes([entry.payload[-1] ^ 1]))
    with Emulator(plant="first_order", lock_step=True) as fresh:
        result = replay(Incident(changed, []), fresh, seed=3)
    assert (
        f"record {entry.number}, byte {len(entry.payload) - 1} of {len(entry.payload)}: got "
        in result.difference
    )


@pytest.mark.slow
def test_a_fault_and_a_key_leave_a_file_each(emulator: Emulator, tmp_path: Path) -> None:
    with process(emulator, LogPlan(tmp_path / "logs", after_s=0.1)) as device:
        device.connect()
        device.arm()
        device.begin()
        assert device.incidents is not None
        device.incidents.keep("the operator's key")
        wait_until(lambda: any(_complete(path) for path in _logs(tmp_path)))
        emulator.fault("right", "overload", 7)
        wait_until(lambda: device.latest().mode is Mode.FAULT)
        wait_until(lambda: len(_logs(tmp_path)) == 2 and all(map(_complete, _logs(tmp_path))))
        assert device.incidents.files == 2
        assert device.incidents.lost == device.incidents.failures == 0
    by_cause = {
        incident.header["reason"]: incident for incident in map(Incident.open, _logs(tmp_path))
    }
    assert set(by_cause) == {"the operator's key", "fault"}
    modes = [int(record["state"]["mode"]) for _, record in by_cause["fault"].cycles]
    assert Mode.HOLD in modes
    assert modes[-1] == Mode.FAULT
    output = "\n".join(IncidentTable(by_cause["fault"]).lines())
    assert "FAULT" in output
    assert "right/wrist_angle (id 7): torque is off, overload" in output


def _logs(folder: Path) -> list[Path]:
    return sorted((folder / "logs").glob("*.log"))


def _complete(path: Path) -> bool:
    return bool(path.stat().st_size and Incident.open(path).ended)


@pytest.mark.slow
def test_neither_a_full_disk_nor_a_stopped_recorder_delays_the_arms(
    emulator: Emulator, tmp_path: Path
) -> None:
    with process(emulator, LogPlan(tmp_path / "logs", everything=True)) as device:
        device.connect()
        incidents = device.incidents
        assert incidents is not None
        assert incidents.pid is not None
        resource.prlimit(incidents.pid, resource.RLIMIT_FSIZE, (60_000, 60_000))
        device.arm()
        device.begin()
        wait_until(lambda: incidents.failures > 0)
        tick = device.latest().tick
        wait_until(lambda: device.latest().tick > tick + 20)
        os.kill(incidents.pid, signal.SIGSTOP)
        tick = device.latest().tick
        wait_until(lambda: device.latest().tick > tick + 20)
        os.kill(incidents.pid, signal.SIGCONT)
    assert incidents.lost > 20
    (path,) = _logs(tmp_path)
    assert path.stat().st_size <= 60_000
    incident = Incident.open(path)
    assert not incident.damage
    assert incident.missing == 0
    assert len(incident.entries) > 20


@pytest.mark.slow
def test_a_killed_device_process_leaves_its_last_seconds(
    emulator: Emulator, tmp_path: Path
) -> None:
    with process(emulator, LogPlan(tmp_path / "logs", after_s=0.1)) as device:
        device.connect()
        device.arm()
        device.begin()
        wait_until(lambda: device.latest().tick > 10)
        tick = device.latest().tick
        assert device.pid is not None
        os.kill(device.pid, signal.SIGKILL)
        wait_until(lambda: bool(_logs(tmp_path)) and _complete(_logs(tmp_path)[0]))
    (path,) = _logs(tmp_path)
    incident = Incident.open(path)
    assert incident.header["reason"] == "the device process died"
    assert int(incident.cycles[-1][1]["state"]["tick"]) >= tick - 1


@pytest.mark.slow
def test_a_killed_owner_leaves_the_last_seconds_until_the_arms_have_come_to_rest(
    emulator: Emulator, tmp_path: Path
) -> None:
    root, folder = str(Path(stringline.__file__).parents[1]), str(tmp_path / "logs")
    script = OWNER.format(root=root, ports=emulator.ports, folder=folder)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "armed\n"
        owner.kill()
    wait_until(lambda: bool(_logs(tmp_path)) and _complete(_logs(tmp_path)[0]))
    incident = Incident.open(_logs(tmp_path)[0])
    assert incident.header["reason"] == "the owner of the device process died"
    assert any(b'"end"' in entry.payload for entry in incident.entries if entry.kind == Kind.EVENT)
    assert len(incident.cycles) > 10
