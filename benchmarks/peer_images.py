"""Renders gym_aloha's TransferCube on request; `simulation.py` runs it as a process.

gym_aloha renders with dm_control, which does not expect other OpenGL contexts in its process: it
would render into that of another one.
"""

import json
import sys
import time

import gym_aloha  # noqa: F401 - Importing it registers its environments.
import gymnasium
import numpy as np


def main() -> None:
    """Renders one image for each line of input; answers with processor and wall seconds."""
    env = gymnasium.make("gym_aloha/AlohaTransferCube-v0", disable_env_checker=True)
    env.reset(seed=0)
    first = np.asarray(env.render())
    for _ in sys.stdin:
        processor, wall = time.process_time(), time.perf_counter()
        image = np.asarray(env.render())
        took = {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}
        assert np.array_equal(image, first)
        print(json.dumps(took | {"shape": image.shape}), flush=True)
    env.close()


if __name__ == "__main__":
    main()
