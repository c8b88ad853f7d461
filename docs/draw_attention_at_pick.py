"""Draws docs/attention_pick.webp: attention of KUKA's arm far from an object and near it.

    python docs/draw_attention_at_pick.py --seed 1000008

The shipped policy `kuka_pick` acts as in `stringline-eval`. *Far* is its first observation, *near*
the one before it first commands closed fingers. Colours over the images of the cameras are the
attention of the token of the arm to each patch (attention rollout, `attention_map`), as a multiple
of the mean over all patches of both cameras.
"""

import argparse
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from draw_episode import EXECUTE_STEPS, LARGEST_STEPS, environment
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from stringline import ChunkPolicy, load_policy
from stringline.policies.observation.interfaces import AttentionMap

TASK = "kuka_pick"
LARGEST = 8.0  # Attention that has the last colour, as a multiple of the mean.

Observation = Mapping[str, NDArray[np.generic]]


def main() -> None:
    """Runs the episode and writes the image."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1000008)
    arguments.add_argument(
        "--to", type=Path, default=Path(__file__).with_name("attention_pick.webp")
    )
    given = arguments.parse_args()
    policy = load_policy(TASK)
    seen = list(until_closed(policy, given.seed))
    cameras = [camera.name for camera in policy.contract.cameras]
    figure, axes = plt.subplots(2, 2 * len(cameras), figsize=(9.2, 4.9), layout="constrained")
    for row, (name, observation) in enumerate((("far", seen[0]), ("near", seen[-1]))):
        found = policy.attention_map(observation)
        assert found is not None  # Of an encoder of places.
        for number, camera in enumerate(cameras):
            draw(axes[row, 2 * number : 2 * number + 2], observation, found, camera)
        axes[row, 0].set_ylabel(name, fontsize=11)
    colours = plt.cm.ScalarMappable(plt.Normalize(0, LARGEST), "inferno")
    figure.colorbar(colours, ax=axes, shrink=0.6, label="attention, multiple of the mean")
    drawn = BytesIO()
    figure.savefig(drawn, dpi=90, format="png")
    Image.open(drawn).convert("RGB").save(given.to, quality=80, method=6)


def until_closed(policy: ChunkPolicy, seed: int) -> Iterator[Observation]:
    """Yields the observations of an episode's plans, up to that of closed fingers."""
    world = environment(TASK, [camera.name for camera in policy.contract.cameras])
    session = policy.session(seed)
    observation, _ = world.reset(seed=seed)
    opened: float | None = None
    for _ in range(LARGEST_STEPS // EXECUTE_STEPS):
        yield observation
        actions = session.plan(observation).action[:EXECUTE_STEPS]
        opened = float(actions[0, -1]) if opened is None else opened
        if (actions[:, -1] < 0.5 * opened).any():
            break
        for action in actions:
            observation, *_ = world.step(action)
    world.close()


def draw(
    panels: NDArray[np.object_], observation: Observation, found: AttentionMap, camera: str
) -> None:
    """Draws the image of a camera, and the attention to its patches beside it."""
    image = observation[f"rgb/{camera}"]
    mean = np.mean([one.mean() for one in found.images.values()])
    share = found.images[camera][0] / mean
    plain, attended = panels
    show(plain, image, camera)
    show(attended, (0.5 * image).astype(np.uint8), f"{camera}, attention")
    attended.imshow(share, cmap="inferno", vmin=0, vmax=LARGEST, alpha=0.65, extent=extent(image))


def show(panel: Axes, image: NDArray[np.generic], title: str) -> None:
    """Shows an image without ticks."""
    panel.imshow(image, extent=extent(image))
    panel.set(xticks=[], yticks=[])
    panel.set_title(title, fontsize=9)


def extent(image: NDArray[np.generic]) -> tuple[float, float, float, float]:
    """Returns the extent of an image in pixels."""
    rows, columns = image.shape[:2]
    return (0, columns, rows, 0)


if __name__ == "__main__":
    main()
