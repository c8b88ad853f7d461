"""Images of an emulated world drawn by another process: they are equal, and delay nothing."""

import logging
import multiprocessing
import select
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.emulators.plants.task_plant import ImageProcess, TaskPlant
from stringline.real_robot.ipc.array_messages import receive, send
from stringline.sim.environment.environment import make_environment

# Nothing looks as it does by default, and depth is measured with noise: all of it comes from seed
# and options.
SEED, OPTIONS = 7, {"object_colour": 1.0, "coloured_light": 1.0, "table_height": 0.05}
NAME = "images"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.bind(str(tmp_path / "images"))
        one.listen()
        yield one


def world(images: socket.socket | None) -> TaskPlant:
    plant = TaskPlant(
        "kuka_pick", cameras=("wrist", "overhead"), image_size=32, frame_hz=12.5, images=images
    )
    plant.begin(SEED, OPTIONS)
    return plant


@pytest.mark.slow
def test_images_equal_those_of_the_world_which_continues_without_them(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    beside, own = world(listener), world(None)
    drawn, matched = [(time.monotonic(), own.frames())], 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as camera:
        camera.connect(listener.getsockname())
        send(camera, {"camera": "wrist", "after": 0})
        for step in range(4000):
            now, target = time.monotonic(), IIWA14.home + 0.2 * np.sin(0.05 * step)
            beside.advance(target)
            own.advance(target)
            if own.frames() is not drawn[-1][1]:
                drawn.append((now, own.frames()))
            if select.select([camera], [], [], 0.005)[0]:
                header, seen = receive(camera)
                assert set(seen) == {"rgb/wrist", "depth/wrist", "intrinsics/wrist", "time/wrist"}
                # The first ones may be of the world before.
                for expected in [frames for since, frames in drawn if since <= seen["time/wrist"]][
                    -1:
                ]:
                    assert all(
                        (seen[key] == expected[key]).all()
                        for key in seen
                        if not key.startswith("time/")
                    )
                    matched += 1
                if matched == 5:
                    break
                send(camera, {"camera": "wrist", "after": header["number"]})
    assert matched == 5
    with pytest.raises(ValueError, match="cameras get their images from a socket of their own"):
        beside.frames()
    (drawing,) = (child for child in multiprocessing.active_children() if child.name == NAME)
    drawing.kill()
    drawing.join()
    with caplog.at_level(logging.ERROR):
        for _ in range(30):
            beside.advance(IIWA14.home)
        beside.begin(SEED, {})
    assert [record.message for record in caplog.records] == [
        "The process that draws images is gone; cameras get no more images."
    ]
    for plant in (beside, own):
        plant.close()


def test_the_error_of_drawing_is_reported(listener: socket.socket) -> None:
    process = ImageProcess(partial(make_environment, "kuka_pik"), listener)
    with pytest.raises(RuntimeError, match="'kuka_pik'. Did you mean 'kuka_pick'"):
        process.wait()
    process.close()
