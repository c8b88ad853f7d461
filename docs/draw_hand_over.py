"""Draws docs/hand_over.webp: the shipped policy hands over the banana, as seen from a free camera.

    python docs/draw_hand_over.py [--seed 1000000] [--to docs/hand_over.webp]

The policy acts in closed loop through the gymnasium interface, as in `stringline-eval`, with a plan
every 24 steps. The animation runs at twice the simulated speed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stringline import TaskEnvironment, load_policy, open_world

TASK = "hand_over_banana"
EXECUTE_STEPS = 24
FRAME_STEPS = 8  # One frame in 8 steps of 20 ms, shown for 80 ms.
FRAME_MS = 80
SIZE = (270, 480)
LARGEST_STEPS = 1000
PAUSE_MS = 1200
BRIGHTNESS = 0.6  # Exponent of the gamma curve.
BACKGROUND = (240, 243, 246)


def main() -> None:
    """Runs the episode and writes the animation."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1000000)
    arguments.add_argument("--to", type=Path, default=Path(__file__).with_name("hand_over.webp"))
    given = arguments.parse_args()
    frames = [Image.fromarray(frame) for frame in episode(given.seed)]
    durations = [FRAME_MS] * (len(frames) - 1) + [PAUSE_MS]
    options = {"append_images": frames[1:], "duration": durations, "loop": 0}
    frames[0].save(given.to, save_all=True, quality=60, method=6, **options)


def episode(seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yields the frames (height, width, 3) of an episode of the shipped policy."""
    policy = load_policy(TASK)
    cameras = [camera.name for camera in policy.contract.cameras]
    world = open_world(TASK, cameras=cameras, time_limit_s=20.0)
    assert isinstance(world, TaskEnvironment)
    model = world.physics.model.ptr
    renderer = mujoco.Renderer(model, *SIZE)
    observation, _ = world.reset(seed=seed)
    session = policy.session(seed)
    done = False
    step = 0
    while not done and step < LARGEST_STEPS:
        for action in session.plan(observation).action[:EXECUTE_STEPS]:
            observation, _, succeeded, expired, _ = world.step(action)
            done = succeeded or expired
            step += 1
            if step % FRAME_STEPS == 0 or done:
                yield image(renderer, world.physics.data.ptr)
            if done:
                break
    renderer.close()
    world.close()


def image(renderer: mujoco.Renderer, data: mujoco.MjData) -> NDArray[np.uint8]:
    """Returns the scene (height, width, 3), brightened, before a light background."""
    renderer.update_scene(data, free_camera())
    colours = 255 * (renderer.render() / 255) ** BRIGHTNESS
    renderer.enable_depth_rendering()
    depth = renderer.render()
    renderer.disable_depth_rendering()
    colours[depth > 0.99 * depth.max()] = BACKGROUND  # Nothing but the far plane.
    return colours.astype(np.uint8)


def free_camera() -> mujoco.MjvCamera:
    """Returns a camera that looks at the table from the operator's side, from above."""
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[:] = (0.0, 0.05, 0.12)
    camera.distance = 1.2
    camera.azimuth = 90.0
    camera.elevation = -28.0
    return camera


if __name__ == "__main__":
    main()
