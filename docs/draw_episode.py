"""Draws an episode as an animation, as seen from a free camera.

    python docs/draw_episode.py                                     # docs/hand_over.webp
    python docs/draw_episode.py --task kuka_pick --seed 1000008 --to docs/kuka_pick.webp
    python docs/draw_episode.py --task bowl_on_rack --checkpoint runs/bowl/training/checkpoint \
        --execute-steps 16 --to docs/bowl_on_rack.webp

The actor is a policy, by default the shipped one of the task, in closed loop through the gymnasium
interface as in `stringline-eval`, or the scripted expert of the task, which reads the true poses of
the objects. The animation runs at twice the simulated speed.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stringline import TaskEnvironment, load_policy, open_world
from stringline.sim.experts.expert_registry import make_expert

FRAME_STEPS = 8  # One frame in 8 steps of 20 ms, shown for 80 ms.
FRAME_MS = 80
SIZE = (270, 480)
LARGEST_STEPS = 1000
PAUSE_MS = 1200
BRIGHTNESS = 0.6  # Exponent of the gamma curve.
BACKGROUND = (240, 243, 246)
# Point that the camera looks at (m), its distance (m), azimuth and elevation (deg), by robot.
VIEWS = {
    "aloha": ((0.0, 0.05, 0.12), 1.2, 90.0, -28.0),
    "iiwa14": ((0.4, 0.0, 0.22), 1.75, 145.0, -22.0),
}


Act = Callable[[Mapping[str, NDArray[np.generic]]], NDArray[np.floating]]


def main() -> None:
    """Runs the episode and writes the animation."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--task", default="hand_over_banana")
    arguments.add_argument("--actor", choices=("policy", "expert"), default="policy")
    arguments.add_argument("--seed", type=int, default=1000000)
    arguments.add_argument("--to", type=Path, default=Path(__file__).with_name("hand_over.webp"))
    arguments.add_argument("--checkpoint", help="of the policy; default: the shipped one")
    arguments.add_argument("--execute-steps", type=int, default=24, help="between two plans")
    given = arguments.parse_args()
    if given.actor == "expert":
        world, act = expert_actor(given.task, given.seed)
    else:
        checkpoint = given.checkpoint or given.task
        world, act = policy_actor(given.task, checkpoint, given.seed, given.execute_steps)
    frames = [Image.fromarray(frame) for frame in episode(world, act, given.seed)]
    durations = [FRAME_MS] * (len(frames) - 1) + [PAUSE_MS]
    options = {"append_images": frames[1:], "duration": durations, "loop": 0}
    frames[0].save(given.to, save_all=True, quality=60, method=6, **options)


def policy_actor(
    task: str, checkpoint: str, seed: int, execute_steps: int
) -> tuple[TaskEnvironment, Act]:
    """Returns a world, and the actions of a policy."""
    policy = load_policy(checkpoint)
    session = policy.session(seed)
    planned: list[NDArray[np.floating]] = []

    def act(observation: Mapping[str, NDArray[np.generic]]) -> NDArray[np.floating]:
        if not planned:
            planned.extend(session.plan(observation).action[:execute_steps])
        return planned.pop(0)

    return environment(task, [camera.name for camera in policy.contract.cameras]), act


def expert_actor(task: str, seed: int) -> tuple[TaskEnvironment, Act]:
    """Returns a world, and the actions of the scripted expert of its task."""
    world = environment(task, [])
    expert = make_expert(task)
    begun = False

    def act(_: Mapping[str, NDArray[np.generic]]) -> NDArray[np.floating]:
        nonlocal begun
        if not begun:
            expert.reset(world, np.random.default_rng(seed))
            begun = True
        return expert.act(world)

    return world, act


def environment(task: str, cameras: list[str]) -> TaskEnvironment:
    """Returns the environment of a task."""
    world = open_world(task, cameras=cameras, time_limit_s=20.0)
    assert isinstance(world, TaskEnvironment)
    return world


def episode(world: TaskEnvironment, act: Act, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yields the frames (height, width, 3) of an episode, and closes its world."""
    model = world.physics.model.ptr
    renderer = mujoco.Renderer(model, *SIZE)
    view = free_camera(world.embodiment.name)
    observation, _ = world.reset(seed=seed)
    for step in range(1, LARGEST_STEPS + 1):
        observation, _, succeeded, expired, _ = world.step(act(observation))
        done = succeeded or expired
        if step % FRAME_STEPS == 0 or done:
            yield image(renderer, world.physics.data.ptr, view)
        if done:
            break
    renderer.close()
    world.close()


def image(
    renderer: mujoco.Renderer, data: mujoco.MjData, view: mujoco.MjvCamera
) -> NDArray[np.uint8]:
    """Returns the scene (height, width, 3), brightened, before a light background."""
    renderer.update_scene(data, view)
    colours = 255 * (renderer.render() / 255) ** BRIGHTNESS
    renderer.enable_depth_rendering()
    depth = renderer.render()
    renderer.disable_depth_rendering()
    colours[depth > 0.99 * depth.max()] = BACKGROUND  # Nothing but the far plane.
    return colours.astype(np.uint8)


def free_camera(robot: str) -> mujoco.MjvCamera:
    """Returns a camera that shows a robot and its table."""
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[:], camera.distance, camera.azimuth, camera.elevation = VIEWS[robot]
    return camera


if __name__ == "__main__":
    main()
