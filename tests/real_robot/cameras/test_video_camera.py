"""Cameras that FFmpeg reads: videos, pipes that stall, and missing ports."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import numpy as np
import pytest

from stringline.real_robot.cameras.camera import Camera, CameraError, Frame
from stringline.real_robot.cameras.camera_process import check_identity, open_camera
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.cameras.cameras import Cameras, RestartPolicy
from stringline.real_robot.cameras.video_camera import BoundedCalls, VideoCamera, serial_of
from stringline.real_robot.ipc.heartbeat import Count


def frames_of(camera: Camera) -> Iterator[tuple[Frame, float]]:
    """Yields images with their ages until the end."""
    try:
        while True:
            frame = camera.frame()
            yield frame, time.monotonic() - frame.captured
    except CameraError:
        return


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images without loss, each of the colour of its number, 50 a second."""
    path = tmp_path_factory.mktemp("video") / "numbers.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=50)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = (
            16,
            12,
            "bgr0",
            Fraction(1, 50),
        )
        for number in range(1, 11):
            card = av.VideoFrame.from_ndarray(
                np.full((12, 16, 3), 20 * number, np.uint8), format="rgb24"
            )
            image = card.reformat(format="bgr0")
            image.pts = number
            file.mux(stream.encode(image))
        file.mux(stream.encode())
    return path


def test_a_recorded_video_replaces_a_camera_at_its_own_rate(video: Path) -> None:
    settings = CameraSettings(
        "table", CameraDriver.FILE, source=str(video), height=12, width=16, hz=50
    )
    camera = open_camera(settings)
    check_identity(camera.start(), settings)
    start = time.monotonic()
    seen = [camera.frame() for _ in range(10)]
    took = time.monotonic() - start
    with pytest.raises(CameraError, match="numbers.mkv has ended"):
        camera.frame()
    camera.close()
    assert [int(frame.colour[0, 0, 0]) for frame in seen] == [
        20 * number for number in range(1, 11)
    ]
    assert [frame.number for frame in seen] == list(range(1, 11))
    assert took >= 9 / 50 - 0.01
    assert np.allclose(np.diff([frame.captured for frame in seen]), 1 / 50, atol=0.01)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same ten images as a stream that FFmpeg opens without reading far ahead."""
    path = tmp_path_factory.mktemp("stream") / "numbers.y4m"
    with av.open(str(path), "w") as file:
        raw = file.add_stream("rawvideo", rate=50)
        raw.width, raw.height, raw.pix_fmt = 16, 12, "yuv420p"
        for number in range(1, 11):
            card = av.VideoFrame.from_ndarray(
                np.full((12, 16, 3), 20 * number, np.uint8), format="rgb24"
            )
            file.mux(raw.encode(card.reformat(format="yuv420p")))
        file.mux(raw.encode())
    return path.read_bytes()


@contextmanager
def pipe_to(path: Path) -> Iterator[int]:
    """Makes a named pipe and returns its writing end, without which the pipe would end."""
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    try:
        yield pipe
    finally:
        os.close(pipe)


def holds(what: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Waits until a condition holds; returns whether it did in time."""
    deadline = time.monotonic() + timeout_s
    while not what() and time.monotonic() < deadline:
        time.sleep(0.005)
    return what()


def reader_ended(source: str) -> bool:
    """Returns whether the thread in which FFmpeg reads a source has ended."""
    return not any(source in thread.name for thread in threading.enumerate())


def test_a_stalled_source_is_detected_in_time(stream: bytes, tmp_path: Path) -> None:
    settings = CameraSettings(
        "table", CameraDriver.FILE, source=str(tmp_path / "pipe.y4m"), height=12, width=16, hz=50
    )
    with pipe_to(Path(settings.source)) as pipe:
        os.write(pipe, stream)
        camera = VideoCamera(settings, next_s=0.4)
        check_identity(camera.start(), settings)
        came = [time.monotonic() for _ in frames_of(camera)]
        assert len(came) == 10
        assert 0.4 <= time.monotonic() - came[-1] < 0.9
        with pytest.raises(CameraError, match=r"pipe\.y4m has delivered no image for 0\.4 s\."):
            camera.frame()
        camera.close()
        assert time.monotonic() - came[-1] < 1.0  # A second call does not wait.
    assert holds(lambda: reader_ended(settings.source))  # FFmpeg returned at the end of the pipe.


def test_a_source_without_a_first_image_is_detected_in_time(tmp_path: Path) -> None:
    settings = CameraSettings("table", CameraDriver.FILE, source=str(tmp_path / "silent.y4m"))
    with pipe_to(Path(settings.source)):
        camera = VideoCamera(settings, first_s=0.2)
        with pytest.raises(CameraError, match=r"silent\.y4m has delivered no image for 0\.2 s\."):
            camera.start()
        camera.close()
    assert holds(lambda: reader_ended(settings.source))


@pytest.mark.slow
def test_a_stalled_camera_is_restarted(
    stream: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The camera process detects it itself, long before the time-out of its owner."""
    settings = CameraSettings(
        "table", CameraDriver.FILE, source=str(tmp_path / "pipe.y4m"), height=12, width=16, hz=50
    )
    with (
        caplog.at_level(logging.WARNING),
        pipe_to(Path(settings.source)) as pipe,
        Cameras([settings], RestartPolicy(silent_s=60.0, pause_s=0.01)) as cameras,
    ):
        (handle,) = cameras.handles
        os.write(pipe, stream)
        handle.wait(20.0)
        cameras.supervise()
        assert holds(lambda: "is restarted" in caplog.text)
        assert handle.count(Count.IMAGES) == 10
        os.write(pipe, stream)
        assert holds(lambda: handle.count(Count.IMAGES) == 20)
        assert np.allclose(cameras.frames()["rgb/table"], 200, atol=4)
    assert "Camera table is restarted, attempt 1 of 5: " in caplog.text
    assert "pipe.y4m has delivered no image for 2 s." in caplog.text


def test_calls_have_a_deadline() -> None:
    """Answers and errors arrive in the order of the calls; a late call ends them."""
    calls, back = BoundedCalls("calls"), threading.Event()
    assert [calls(partial(str, number), 5.0) for number in range(3)] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="no"):
        calls(lambda: int("no"), 5.0)
    assert calls(lambda: "yes", 5.0) == "yes"
    with pytest.raises(TimeoutError):
        calls(back.wait, 0.02)
    assert calls.late
    made: list[int] = []
    with pytest.raises(TimeoutError):
        calls(lambda: made.append(1), 5.0)
    back.set()
    assert holds(lambda: reader_ended("calls"))
    assert made == []


@pytest.mark.parametrize("driver", ["v4l2", "file"])
def test_a_missing_video_port_is_refused(driver: str, tmp_path: Path) -> None:
    settings = CameraSettings.of("table", {"driver": driver, "source": str(tmp_path / "video9")})
    with pytest.raises(CameraError, match="video9 cannot be opened as a camera: .*No such file"):
        open_camera(settings).start()


def test_the_serial_number_of_a_usb_camera_is_read_from_the_system(tmp_path: Path) -> None:
    usb = tmp_path / "devices" / "usb1" / "1-2"
    (usb / "1-2:1.0").mkdir(parents=True)
    (usb / "serial").write_text("SN0042\n")
    port = tmp_path / "class" / "video3"
    port.mkdir(parents=True)
    (port / "device").symlink_to(usb / "1-2:1.0")
    (tmp_path / "video3").touch()
    (tmp_path / "by-id").symlink_to(tmp_path / "video3")
    assert serial_of(tmp_path / "by-id", tmp_path / "class") == "SN0042"
    assert serial_of(tmp_path / "video4", tmp_path / "class") == ""
