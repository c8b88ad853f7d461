"""What the comparisons with other packages share: contents, claims, and the other environment.

Each comparison is a script of `make interop`. It starts itself in the environment of the other
package with the name of a role.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[3]
HZ = 50
LENGTHS = (7, 11)
SHAPE = (48, 64, 3)

Roles = Mapping[str, Callable[[Path, Path], None]]


def image(step: int, episode: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return np.stack([3 * rows + 5 * step, 2 * columns, 0 * rows + 90 * episode], axis=-1).astype(
        np.uint8
    )


def images(episode: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.stack([image(step, episode) for step in range(LENGTHS[episode])])


def depth(step: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    return (700 + 10 * step + np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE[:2])).astype(np.uint16)


def vectors(steps: int, episode: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(episode).uniform(0, 1, (steps, 14)).astype(np.float32)


def original_store(path: Path) -> Any:
    """Returns a store of ALOHA with one camera with depth."""
    from stringline.datasets.contract.contract import Camera
    from stringline.datasets.embodiments.aloha import ALOHA
    from stringline.datasets.store.episode import EpisodeAttributes
    from stringline.datasets.store.store import EpisodeStore

    store = EpisodeStore.create(path)
    contract = ALOHA.contract(
        [Camera("overhead", *SHAPE[:2], has_geometry=False, depth="simulated")], HZ
    )
    for episode, steps in enumerate(LENGTHS):
        time = np.arange(steps) / HZ
        arrays = {
            "time": time,
            "joints/position": vectors(steps, episode),
            "action": vectors(steps, episode + 50),
            "rgb/overhead": images(episode),
            "depth/overhead": np.stack([depth(step) for step in range(steps)]),
            "frame/overhead": np.arange(steps, dtype=np.int32),
            "time/overhead": time,
            **{f"T_base_gripper/{arm}": np.zeros((steps, 4, 4), np.float32) for arm in ALOHA.arms},
        }
        store.write(
            arrays, EpisodeAttributes(contract, "stack", episode, instruction=f"task {episode}")
        )
    return store


def imported_store(reader: Any, source: Path, path: Path) -> Any:
    """Imports a data set completely and returns its store."""
    from stringline.datasets.formats.importing import import_data
    from stringline.datasets.store.store import EpisodeStore

    store = EpisodeStore.create(path)
    outcome = import_data(reader, source, store)
    expect(not outcome.refused, f"their data set is imported completely {dict(outcome.refused)}")
    return store


def run_role(roles: Roles) -> bool:
    """Runs the role that the command line names; returns whether it names one."""
    if sys.argv[1] not in roles:
        return False
    roles[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    return True


def elsewhere(script: str, python: str, role: str, *paths: Path) -> None:
    """Runs a role of one of these scripts in another environment."""
    environment = {
        "PYTHONPATH": f"{ROOT / '.src'}:{os.environ.get('INTEROP_PATH', '')}",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(paths[0].parent / "home"),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [python, str(Path(__file__).with_name(f"{script}.py")), role, *map(str, paths)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"In the other environment, {role}:\n{done.stderr}")


def expect(holds: bool | np.bool_, claim: str, *, show: bool = True) -> None:
    if not holds:
        sys.exit(f"Failed: {claim}")
    if show:
        sys.stdout.write(f"ok  {claim}\n")
