"""Files of MuJoCo Menagerie (Zakka et al., 2022): models of robots in MJCF, with their meshes.

They are read from `MENAGERIE_ROOT`, a copy of the collection, or else from the package
`mujoco-menagerie`, which downloads each model on its first use.
"""

import os
from collections.abc import Mapping
from importlib import import_module, util
from pathlib import Path

ROOT_VARIABLE = "MENAGERIE_ROOT"
PACKAGE = "mujoco_menagerie"
HOW = (
    "Set MENAGERIE_ROOT to a copy of github.com/google-deepmind/mujoco_menagerie, or pip install "
    '"stringline[menagerie]", which downloads the models on first use.'
)


def menagerie_file(folder: str, file: str) -> Path:
    """Returns a file of a model.

    Raises:
        ValueError: The files are missing; the message says what to do.
    """
    root = os.environ.get(ROOT_VARIABLE)
    if not root and util.find_spec(PACKAGE) is None:
        raise ValueError(f"The models of MuJoCo Menagerie are not installed. {HOW}")
    found = Path(root) / folder if root else _fetched(folder)
    if not (found / file).is_file():
        where = f"MENAGERIE_ROOT is {root!r}" if root else "mujoco-menagerie is installed"
        raise ValueError(f"{where}, but {found} has no {file}. {HOW}")
    return found / file


def menagerie_arms() -> Mapping[str, str]:
    """Returns the file of each arm of the package by the name of its folder; empty without it."""
    if util.find_spec(PACKAGE) is None:
        return {}
    robots = (
        robot for kind in ("arm", "dual_arm") for robot in import_module(PACKAGE).robots(kind)
    )
    return {robot.name: robot.entry(robot.default_model).file for robot in robots}


def _fetched(folder: str) -> Path:
    """Returns the package's folder of a model, and downloads it on first use."""
    package = import_module(PACKAGE)
    try:
        return Path(package.get(folder).path())
    except (package.MenagerieError, OSError) as error:
        raise ValueError(
            f"mujoco-menagerie cannot download {folder}: {' '.join(str(error).split())}. {HOW}"
        ) from error
