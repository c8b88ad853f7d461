"""The live view: drawing from a ring and a queue of images, and refusals."""

import importlib
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stringline import ALOHA, ActionChunk, Camera, SafetyLimits
from stringline.datasets.contract.contract import Array
from stringline.real_robot.deployment import live_view
from stringline.real_robot.deployment.live_view import LiveView, check_view, viewing
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState, state_layout
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.incidents.incident_log import IncidentLog
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.safety.reasons import Mode, Reason

CONTRACT = ALOHA.contract([Camera("overhead", 8, 8)], 50.0)
LAYOUT = state_layout(14, 18, 2)


class Images:
    def frames(self) -> dict[str, Array]:
        return {
            "rgb/overhead": np.full((8, 8, 3), 200, np.uint8),
            "time/overhead": np.asarray(time.monotonic()),
            "intrinsics/overhead": np.eye(3, dtype=np.float32),
        }


@pytest.fixture
def device(tmp_path: Path) -> Iterator[DeviceProcess]:
    """Never started: the test writes into its ring."""
    driver = AlohaDriver({"left": "/dev/left", "right": "/dev/right"})
    with DeviceProcess(
        driver,
        ALOHA,
        SafetyLimits.of(ALOHA, cartesian_speed=None),
        log=LogPlan(tmp_path / "log", seconds=1.0),
    ) as silent:
        yield silent


def entities(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for chunk in (
        importlib.import_module("rerun.chunk").RrdReader(str(path)).store().stream().to_chunks()
    ):
        found.setdefault(chunk.entity_path, []).append(chunk.to_record_batch())
    return found


def scalars(batches: list[Any]) -> list[float]:
    return [float(value[0]) for batch in batches for value in batch["Scalars:scalars"].to_pylist()]


@pytest.mark.slow
def test_the_records_of_the_device_process_are_drawn(device: DeviceProcess, tmp_path: Path) -> None:
    assert device.incidents is not None
    pen, file = IncidentLog(device.incidents.memory, LAYOUT, 14), tmp_path / "new" / "live.rrd"
    record = np.zeros((), LAYOUT)
    record["position"], record["mode"], record["reasons"] = ALOHA.home, Mode.HOLD, Reason.TABLE
    rates = {"period_s": 0.01, "frame_hz": 100.0}
    with viewing(str(file), device, CONTRACT, ALOHA, Images(), **rates) as show:
        deadline = time.monotonic() + 20.0
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for tick in range(60):
            pen.chunk(ActionChunk(np.array([5.0]), np.zeros((1, 14), np.float32)), 0, 1)
            record["tick"], record["time"], record["command"] = (
                tick,
                5.0 + 0.01 * tick,
                ALOHA.home + 0.01 * tick,
            )
            pen.cycle(record, 5.0 + 0.01 * tick, 1, None, {})
            show(DeviceState.of(record))
            time.sleep(0.01)
    found = entities(file)
    names = [joint.name for joint in ALOHA.joints]
    expected = {
        "/world/arms",
        "/world/grippers/left",
        "/world/grippers/right",
        "/images/overhead",
        "/filter/mode",
    }
    expected |= {f"/{what}/{name}" for what in ("measured", "sent") for name in names} | {
        "/filter/table"
    }
    expected |= {"/loop/command_age_ms", "/loop/missed", "/loop/cycle_99_percent_ms"}
    assert set(found) >= expected
    assert scalars(found["/sent/left/waist"])[-1] == pytest.approx(ALOHA.home[0] + 0.59, abs=1e-6)
    assert scalars(found["/loop/command_age_ms"])[-1] == pytest.approx(590.0, abs=1e-3)
    assert 10 <= scalars(found["/filter/table"])[-1] <= 60  # The view began later than the log.
    (output,) = [
        text[0] for batch in found["/filter/mode"] for text in batch["TextLog:text"].to_pylist()
    ]
    assert output == "HOLD: a target would move an arm into the table"
    strips = found["/world/arms"][-1]["LineStrips3D:strips"].to_pylist()[-1]
    assert np.allclose(
        strips[0],
        [ALOHA.capsules(ALOHA.home)[0].start, ALOHA.capsules(ALOHA.home)[0].end],
        atol=1e-6,
    )


def test_without_a_target_nothing_is_drawn(device: DeviceProcess) -> None:
    with viewing(None, device, CONTRACT, ALOHA, Images(), period_s=0.01, frame_hz=10.0) as show:
        show(DeviceState.of(np.zeros((), LAYOUT)))


def test_a_view_needs_a_log_and_a_valid_target() -> None:
    driver = AlohaDriver({"left": "/dev/left", "right": "/dev/right"})
    with (
        DeviceProcess(driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None)) as silent,
        pytest.raises(ValueError, match="reads the log of the device process: log.folder=FOLDER"),
    ):
        LiveView(silent, CONTRACT, ALOHA, "spawn", period_s=0.01, frame_hz=10.0)
    with pytest.raises(
        ValueError, match=r"view is 'file.mp4'; allowed: null, spawn, FILE.rrd, or rerun\+http"
    ):
        check_view("file.mp4")


def test_a_missing_viewer_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r'Run: pip install "stringline\[view\]"'):
        check_view("spawn")


def test_a_window_is_one_that_only_this_machine_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, str]] = []

    def viewer(**options: str) -> SimpleNamespace:
        opened.append(options)
        return SimpleNamespace(address="rerun+http://127.0.0.1:9/proxy")

    connected: list[str] = []
    stream = SimpleNamespace(
        connect_grpc=connected.append, flush=lambda **_: None, disconnect=lambda: None
    )
    monkeypatch.setattr(live_view, "leave_to_owner", lambda: None)
    monkeypatch.setattr(live_view, "open_viewer", viewer)
    rerun = SimpleNamespace(RecordingStream=lambda _: stream)
    monkeypatch.setattr(live_view, "optional_library", lambda *_, **__: rerun)
    monkeypatch.setattr(live_view, "Drawing", lambda *_: SimpleNamespace(look=lambda: None))
    owner, process = Pipe()
    owner.close()
    setup: Any = SimpleNamespace(where="spawn")
    live_view.run_view(setup, process)
    assert opened == [{"memory_limit": "1GB"}], "at the default address"
    assert connected == ["rerun+http://127.0.0.1:9/proxy"]
