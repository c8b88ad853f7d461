"""Embodiments by a name or a file: built in, YAML, URDF, MJCF, MuJoCo Menagerie, or a package.

Models of MuJoCo Menagerie (Zakka et al., 2022) are read from `MENAGERIE_ROOT`, a copy of the
collection, or else from the package `mujoco-menagerie`, which downloads each on its first use.
"""

import logging
import os
from collections.abc import Mapping
from importlib import import_module, util
from pathlib import Path

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.embodiment_file import (
    EmbodimentFile,
    compile_embodiment,
    parse_embodiment_file,
)
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.embodiments.model_file import RobotModel, read_model
from stringline.datasets.embodiments.model_survey import survey

ROOT_VARIABLE = "MENAGERIE_ROOT"
MENAGERIE_PACKAGE = "mujoco_menagerie"
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
    if not root and util.find_spec(MENAGERIE_PACKAGE) is None:
        raise ValueError(f"The models of MuJoCo Menagerie are not installed. {HOW}")
    found = Path(root) / folder if root else _fetched(folder)
    if not (found / file).is_file():
        where = f"MENAGERIE_ROOT is {root!r}" if root else "mujoco-menagerie is installed"
        raise ValueError(f"{where}, but {found} has no {file}. {HOW}")
    return found / file


def menagerie_arms() -> Mapping[str, str]:
    """Returns the file of each arm of the package by the name of its folder; empty without it."""
    if util.find_spec(MENAGERIE_PACKAGE) is None:
        return {}
    robots = (
        robot
        for kind in ("arm", "dual_arm")
        for robot in import_module(MENAGERIE_PACKAGE).robots(kind)
    )
    return {robot.name: robot.entry(robot.default_model).file for robot in robots}


def _fetched(folder: str) -> Path:
    """Returns the package's folder of a model, and downloads it on first use."""
    package = import_module(MENAGERIE_PACKAGE)
    try:
        return Path(package.get(folder).path())
    except (package.MenagerieError, OSError) as error:
        raise ValueError(
            f"mujoco-menagerie cannot download {folder}: {' '.join(str(error).split())}. {HOW}"
        ) from error


MENAGERIE = "menagerie:"
PACKAGE = "package:"
FILES = (".urdf", ".xml", ".mjcf", ".yaml", ".yml")
IN_PACKAGE = "embodiment.yaml"
"""The embodiment of a package that is named without a file."""
_BUILT_IN = Path(__file__).parent / "menagerie"
_log = logging.getLogger(__name__)


def is_source(text: str) -> bool:
    """Returns whether a text names a file, or a robot of Menagerie or of a package."""
    return text.startswith((MENAGERIE, PACKAGE)) or Path(text).suffix.lower() in FILES


def menagerie_names() -> list[str]:
    """Returns the names of the built-in arms of MuJoCo Menagerie."""
    return sorted(file.stem for file in _BUILT_IN.glob("*.yaml"))


def load_embodiment(source: str) -> Embodiment:
    """Returns the embodiment that a text names.

    Args:
        source: `iiwa14` or another built-in robot; FILE.yaml as `stringline-data embodiment`
            writes; FILE.urdf or FILE.xml (MJCF); `menagerie:NAME`; or `package:NAME/FILE`, a file
            of an installed Python package, whose code is not run.

    Raises:
        ValueError: There is no such robot or file, or it does not determine an embodiment.
    """
    if not is_source(source):
        if source not in EMBODIMENTS:
            raise unknown_name("embodiment", source, EMBODIMENTS)
        return EMBODIMENTS[source]
    return compile_embodiment(*load_parts(source))


def load_parts(source: str) -> tuple[RobotModel, EmbodimentFile]:
    """Returns the model that a text names, and its YAML file, or what such a file would contain.

    Raises:
        ValueError: As `load_embodiment`.
    """
    if source.startswith(MENAGERIE):
        name = source.removeprefix(MENAGERIE)
        if name in menagerie_names():
            return _described(_BUILT_IN / f"{name}.yaml")
        return _surveyed(_menagerie(name))
    path = _packaged(source) if source.startswith(PACKAGE) else Path(source)
    return _described(path) if path.suffix.lower() in (".yaml", ".yml") else _surveyed(path)


def model_path(source: str, folder: Path) -> Path:
    """Returns the file of a model, relative to a folder, or of Menagerie or a package.

    Raises:
        ValueError: There is no such package or robot.
    """
    if source.startswith(MENAGERIE):
        return _menagerie(source.removeprefix(MENAGERIE))
    return _packaged(source) if source.startswith(PACKAGE) else folder / source


def _described(path: Path) -> tuple[RobotModel, EmbodimentFile]:
    file = parse_embodiment_file(path)
    robot = read_model(model_path(file.model, path.parent))
    tell_missing(robot)
    return robot, file


def _surveyed(path: Path) -> tuple[RobotModel, EmbodimentFile]:
    robot = read_model(path)
    tell_missing(robot)
    file = survey(robot)
    # A file would give joints without limits one turn to each side; a user must see that.
    return robot, EmbodimentFile(file.name, file.model, file.arms, file.base_frame)


def tell_missing(robot: RobotModel) -> None:
    """Warns of meshes that were left out: their links have no shape, as in clouds."""
    if robot.missing:
        name, reason = next(iter(robot.missing.items()))
        _log.warning(
            "%s: %d meshes are left out, such as %s, which %s. Kinematics do not need them; links "
            "without shapes have no capsules.",
            robot.path.name,
            len(robot.missing),
            name,
            reason,
        )


def _menagerie(name: str) -> Path:
    """Returns the file FOLDER/FILE.xml, or the default one of a folder."""
    folder, _, file = name.partition("/")
    if not file:
        arms = menagerie_arms()
        if folder not in arms:
            raise unknown_name("arm of menagerie", folder, {*menagerie_names(), *arms})
        file = arms[folder]
    return menagerie_file(folder, file)


def _packaged(source: str) -> Path:
    """Returns a file of an installed Python package."""
    package, _, file = source.removeprefix(PACKAGE).partition("/")
    spec = util.find_spec(package) if package.isidentifier() else None
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise ValueError(
            f"There is no Python package {package!r} for {source!r}. Install it, or give the path "
            "of the file."
        )
    for folder in folders:
        if (found := Path(folder) / (file or IN_PACKAGE)).is_file():
            return found
    offered = sorted(
        path.relative_to(folder).as_posix()
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.suffix.lower() in FILES
    )
    raise unknown_name(f"file in the package {package}", file or IN_PACKAGE, offered[:50])
