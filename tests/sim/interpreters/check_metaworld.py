"""MetaWorld's tasks in its own interpreter: experts, images with depth, and all names.

Run by `make interop`; the Python of MetaWorld's environment is the only argument.
"""

import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import check_observation
from stringline.datasets.loading.keyposes import episode_keyposes, sequence_of
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.interpreters.environment_process import Interpreter
from stringline.sim.worlds.world_registry import open_world

TASKS = ("door-open-v3", "pick-place-v3", "window-close-v3")
CAMERAS = ("corner4", "gripperPOV")
WITH_EXPERTS = """
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
assert set(ALL_V3_ENVIRONMENTS) == set(ENV_POLICY_MAP)
print(len(ALL_V3_ENVIRONMENTS))
"""


def main() -> None:
    """The comparison."""
    interpreter = Interpreter(sys.argv[1])
    count = subprocess.run(
        [sys.argv[1], "-c", WITH_EXPERTS], check=True, capture_output=True, text=True
    )
    expect(int(count.stdout) == 50, "MetaWorld has 50 tasks, all with an expert")
    check_geometry(interpreter)
    with tempfile.TemporaryDirectory() as folder:
        for name in TASKS:
            check_expert(name, interpreter, Path(folder) / name)


def check_expert(name: str, interpreter: Interpreter, store: Path) -> None:
    recipe = Recipe(
        f"metaworld:{name}",
        cameras=CAMERAS,
        control_hz=80.0,
        frame_hz=16.0,
        time_limit_s=6.25,
        interpreter=interpreter,
    )
    found = collect(recipe, store, 2, workers=1)
    expect(found.successes == 2, f"{name}: {found.successes} of {found.tried} attempts succeeded")
    for episode in EpisodeStore.open(store).episodes():
        action = np.asarray(episode.arrays["action"])
        hand = np.asarray(episode.arrays["T_base_gripper/arm"])[:, :3, 3]
        away = np.abs(np.diff(hand, axis=0)).max()
        expect(action.shape == (len(hand), 4) and away < 0.05, f"{name}: end-effector actions")
        found = sequence_of(episode_keyposes(episode, KeyposeSettings()), ("arm",))
        expect(found.endswith("arm stops"), f"{name}: keyposes ({found})")


def check_geometry(interpreter: Interpreter) -> None:
    """Both cameras see the gripper where its pose says."""
    task = "metaworld:reach-v3"
    with closing(
        open_world(task, interpreter=interpreter, cameras=CAMERAS, control_hz=80.0, frame_hz=16.0)
    ) as world:
        world.begin(0)
        seen = world.observe()
        check_observation(seen, world.contract)
        for camera in CAMERAS:
            T_camera_base = np.linalg.inv(seen[f"T_base_camera/{camera}"].astype(np.float64))
            point = (T_camera_base @ seen["T_base_gripper/arm"][:, 3])[:3]
            column, row = (seen[f"intrinsics/{camera}"] @ (point / point[2]))[:2].astype(int)
            around = seen[f"depth/{camera}"][row - 30 : row + 31, column - 30 : column + 31] / 1000
            near = np.abs(around - point[2]).min()
            expect(bool(near < 0.02), f"{camera}: the gripper is seen where its pose says")


def expect(holds: bool, claim: str) -> None:
    if not holds:
        sys.exit(f"Failed: {claim}")
    sys.stdout.write(f"ok  {claim}\n")


if __name__ == "__main__":
    main()
