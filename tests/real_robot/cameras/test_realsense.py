"""The driver of RealSense cameras, in camera processes, on recordings of software cameras."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.real_robot.cameras.record_realsense import BASELINE_M, HEIGHT, HZ, IMAGES, LENS, WIDTH

from stringline.real_robot.cameras.camera import CameraError, Frame
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.cameras.cameras import CameraHandle
from stringline.real_robot.cameras.realsense import librealsense
from stringline.real_robot.ipc.heartbeat import CameraLiveness

ROOT = Path(__file__).parents[3]
START_S = 20.0
Open = Callable[[CameraSettings], CameraHandle]


def record(path: Path, serial: str) -> Path:
    """Records in another process; the library never runs in that of the tests."""
    subprocess.run(
        [sys.executable, "-m", "tests.real_robot.cameras.record_realsense", str(path), serial],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".src")},
        timeout=60,
        check=True,
    )
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("realsense") / "cards.db3", "012345")


def realsense(recording: Path, **changes: Any) -> CameraSettings:
    plain = {
        "driver": "realsense",
        "source": str(recording),
        "height": HEIGHT,
        "width": WIDTH,
        "hz": HZ,
        "depth": True,
    }
    return CameraSettings.of("overhead", {**plain, **changes})


@contextmanager
def started(settings: CameraSettings) -> Iterator[CameraHandle]:
    handle = CameraHandle(settings, CameraLiveness.of([settings.name]), 0)
    try:
        handle.start()
        yield handle
    finally:
        handle.end()


def refusal(settings: CameraSettings) -> str:
    """Returns the error of a camera that must not start."""
    with started(settings) as camera, pytest.raises(CameraError) as error:
        camera.wait(START_S)
    return str(error.value)


def images_of(camera: CameraHandle) -> Iterator[tuple[Frame, float]]:
    """Yields images with their ages until the camera fails, here at the end of its recording."""
    deadline = time.monotonic() + START_S
    last = 0
    while not camera.problem and time.monotonic() < deadline:
        frame = camera.newest()
        if frame is not None and frame.number > last:
            last = frame.number
            yield frame, time.monotonic() - frame.captured
        camera.receive()
        time.sleep(0.001)


@pytest.mark.slow
def test_a_realsense_delivers_colour_with_aligned_depth(recording: Path) -> None:
    with started(realsense(recording)) as camera:
        identity = camera.wait(START_S)
        seen = list(images_of(camera))
        assert camera.problem == "it has delivered no image for 2 s."
    assert (identity.serial, identity.description) == ("012345", "Card camera")
    numbers = [frame.number for frame, _ in seen]
    assert len(numbers) > IMAGES / 2
    for frame, age in seen:
        assert frame.colour is not None
        assert (frame.colour == frame.number).all()
        assert 0.0 <= age < 1.0
    # Stamps keep the pace of the camera, not that of the arrivals.
    steps = np.diff([frame.captured for frame, _ in seen]) * HZ - np.diff(numbers)
    assert np.median(np.abs(steps)) < 0.05
    depth, lens = seen[-1][0].depth, seen[-1][0].intrinsics
    assert depth is not None
    assert lens is not None
    # Millimetres at the pixels of the colour image: the square, half as far, has moved twice as far
    # to the left as the wall.
    assert np.allclose(lens, [[60, 0, 31], [0, 61, 24], [0, 0, 1]])
    columns = np.flatnonzero(depth[24] == 1000)
    assert abs(columns.mean() - (31.5 - LENS["fx"] * BASELINE_M / 1.0)) <= 1.0
    assert np.isin(depth, (0, 1000, 2000)).all()
    assert (depth[30:46, 50:60] == 2000).all()
    assert not depth[0].any()


@pytest.mark.slow
def test_a_missing_realsense_is_reported_with_the_connected_ones(
    tmp_path: Path, recording: Path
) -> None:
    missing = refusal(realsense(tmp_path / "none.db3"))
    assert missing == f"the recording {tmp_path / 'none.db3'} does not exist."
    unplugged = refusal(realsense(Path(), source="", serial="999"))
    expected = "of 64x48 at 30 Hz with the serial number 999. Connected serial numbers: none"
    assert expected in unplugged
    narrow = refusal(realsense(recording, width=32))
    assert "delivers colour and depth of 32x48 at 30 Hz. The recording is " in narrow
    assert "cards.db3" in narrow
    other = refusal(realsense(recording, serial="999"))
    assert other == "its serial number is 012345; expected is 999."


@pytest.mark.slow
def test_a_restarted_realsense_is_the_same_one(recording: Path, tmp_path: Path) -> None:
    """The serial number is not configured, and is fixed by the first start."""
    other = record(tmp_path / "other.db3", "543210")
    link = tmp_path / "camera.db3"
    link.symlink_to(recording)
    with started(realsense(link)) as camera:
        assert camera.wait(START_S).serial == "012345"
        camera.end()
        link.unlink()
        link.symlink_to(other)
        camera.start()
        with pytest.raises(CameraError, match="its serial number is 543210; expected is 012345"):
            camera.wait(START_S)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrealsense2", None)
    with pytest.raises(
        CameraError,
        match=r'pyrealsense2, which is not installed. Run: pip install "stringline\[realsense\]"',
    ):
        librealsense()
