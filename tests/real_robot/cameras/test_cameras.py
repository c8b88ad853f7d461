"""Cameras without an emulator: restarts, slow cameras and equal names."""

import io
import logging
import time
from pathlib import Path

import pytest

from stringline.real_robot.cameras.camera import CameraError
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.cameras.cameras import (
    CameraHandle,
    Cameras,
    RestartPolicy,
    check_cameras,
    check_rate,
)
from stringline.real_robot.ipc.heartbeat import CameraLiveness
from stringline.real_robot.operator.checklist import Checklist


def test_the_number_of_restarts_of_a_camera_is_limited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = CameraSettings("table", CameraDriver.FILE, source=str(tmp_path / "none.mkv"))
    with (
        Cameras([settings], RestartPolicy(restarts=2, pause_s=0.05)) as cameras,
        caplog.at_level(logging.WARNING),
    ):
        checklist = Checklist(shown := io.StringIO())
        check_cameras(cameras, checklist, None)
        assert "FAILED  camera table" in shown.getvalue()
        with pytest.raises(
            ValueError, match=r"Not started.\ncamera table: .*none.mkv cannot be opened as a camera"
        ):
            checklist.check_passed()
        cameras.supervise()
        deadline = time.monotonic() + 30.0
        while "has failed after" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.2)
        assert not cameras.handles[0].alive
        assert cameras.frames() == {}
        assert cameras.summary() == [
            "Camera table: 0 images, 0 lost, 0 out of order; restarted 2 times."
        ]
    assert "Camera table is restarted, attempt 2 of 2: " in caplog.text
    assert "Camera table has failed after 2 restarts: " in caplog.text


def test_a_slow_camera_is_refused() -> None:
    settings = CameraSettings("table", CameraDriver.V4L2, source="x", height=4, width=4, hz=200.0)
    handle = CameraHandle(settings, CameraLiveness.of(["table"]), 0)
    with pytest.raises(CameraError, match="it delivers 0.0 images per second; configured are 200"):
        check_rate(handle)


def test_two_cameras_of_one_name_are_refused() -> None:
    settings = CameraSettings("table", CameraDriver.V4L2, source="x")
    with pytest.raises(ValueError, match="The camera 'table' is configured more than once"):
        Cameras([settings, settings])
