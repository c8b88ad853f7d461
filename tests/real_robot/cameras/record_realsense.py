"""Records a software RealSense camera: `python record_realsense.py FILE SERIAL`.

It runs in a process of its own, and ends without exit handlers: the library can crash or wait
forever at the end of a recording (librealsense, issues 5503 and 9446).
"""

import os
import sys
import time
from typing import Any

import numpy as np

from stringline.real_robot.cameras.realsense import librealsense

HEIGHT, WIDTH, HZ, IMAGES = 48, 64, 30, 24
UNIT_M = 0.0005
LENS = {"fx": 60.0, "fy": 61.0, "ppx": 30.5, "ppy": 23.5}
BASELINE_M = 0.03


def video_stream(rs: Any, kind: Any, number: int, form: Any, size: int) -> Any:
    """Describes one stream of a software camera."""
    lens, stream = rs.intrinsics(), rs.video_stream()
    lens.width, lens.height, lens.model, lens.coeffs = WIDTH, HEIGHT, rs.distortion.none, [0.0] * 5
    for name, value in LENS.items():
        setattr(lens, name, value)
    stream.type, stream.index, stream.uid, stream.fps, stream.bpp, stream.fmt = (
        kind,
        0,
        number,
        HZ,
        size,
        form,
    )
    stream.width, stream.height, stream.intrinsics = WIDTH, HEIGHT, lens
    return stream


def depth_card() -> np.ndarray:
    """A wall two metres away, with a square half as far."""
    card = np.full((HEIGHT, WIDTH), round(2.0 / UNIT_M), np.uint16)
    card[16:32, 24:40] = round(1.0 / UNIT_M)
    card[0] = 0
    return card


def record_realsense(path: str, serial: str) -> None:
    """Records a software camera whose colour sensor is 3 cm to the right of its depth sensor."""
    rs = librealsense()
    device = rs.software_device()
    device.register_info(rs.camera_info.name, "Card camera")
    device.register_info(rs.camera_info.serial_number, serial)
    eyes = [device.add_sensor("Depth"), device.add_sensor("Color")]
    kinds = [(rs.stream.depth, 1, rs.format.z16, 2), (rs.stream.color, 2, rs.format.rgb8, 3)]
    profiles = [
        eye.add_video_stream(video_stream(rs, *kind)) for eye, kind in zip(eyes, kinds, strict=True)
    ]
    eyes[0].add_read_only_option(rs.option.depth_units, UNIT_M)
    apart = rs.extrinsics()
    apart.rotation, apart.translation = [1, 0, 0, 0, 1, 0, 0, 0, 1], [-BASELINE_M, 0, 0]
    profiles[0].register_extrinsics_to(profiles[1], apart)
    recorder = rs.recorder(path, device)
    sensors, kept = recorder.query_sensors(), []
    for sensor in sensors:
        sensor.open(sensor.get_stream_profiles()[0])
        sensor.start(lambda _: None)
    for number in range(1, IMAGES + 1):
        cards = [depth_card(), np.full((HEIGHT, WIDTH, 3), number, np.uint8)]
        for eye, profile, card, size in zip(eyes, profiles, cards, (2, 3), strict=True):
            image = rs.software_video_frame()
            image.pixels, image.stride, image.bpp = card, WIDTH * size, size
            image.timestamp, image.domain = (
                1000.0 + number * 1000 / HZ,
                rs.timestamp_domain.hardware_clock,
            )
            image.frame_number, image.profile = number, profile.as_video_stream_profile()
            eye.on_video_frame(image)
        kept.append(cards)  # The library reads them later.
        time.sleep(1 / HZ)
    for sensor in sensors:
        sensor.stop()
        sensor.close()


if __name__ == "__main__":
    record_realsense(sys.argv[1], sys.argv[2])
    os._exit(0)
