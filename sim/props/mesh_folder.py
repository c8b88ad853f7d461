"""Objects to grasp from a folder of meshes, some of which are kept for evaluation."""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, SHARE
from stringline.sim.props.mesh_files import find_meshes, load_mesh
from stringline.sim.props.mesh_object import MeshObject

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MeshFolder:
    """Objects of a folder of OBJ and GLB files, such as YCB or Google Scanned Objects.

    The name of an object decides whether it is held out and its place in the order of choice, so
    other files in the folder do not change either.

    Args:
        folder: The folder; `find_meshes` describes its layouts.
        unit_m: Metres per unit of the files.
        up: The axis of the files that points up, `z` or `y`.
        count: Most objects to take. All of them are in the simulated world, whose steps take
            longer with each.
        held_out: Whether to take the objects that are held out in place of the others.
        share: Share of the objects that is held out, from 0 to below 1.

    Raises:
        ValueError: An argument is out of range.
    """

    folder: str | Path
    unit_m: float = 1.0
    up: str = "z"
    count: int = 24
    held_out: bool = False
    share: float = 0.2

    def __post_init__(self) -> None:
        COUNT.check(count=self.count)
        SHARE.check(share=self.share)

    def objects(self) -> Sequence[MeshObject]:
        """Reads the objects, in order of choice.

        Those that cannot be read, or that the gripper cannot grasp, are left out with a warning.

        Raises:
            ValueError: No object is left.
            ModuleNotFoundError: trimesh is not installed.
        """
        found = find_meshes(Path(self.folder).expanduser())
        split = [name for name in found if (_place(name) < self.share) == self.held_out]
        taken: list[MeshObject] = []
        refused: list[str] = []
        for name in sorted(split, key=_place):
            item = self._read(name, found[name])
            if item is not None:
                fits = any(hold.is_level() for hold in item.holds)
                taken += [item] * fits
                refused += [_described(item)] * (not fits)
            if len(taken) == self.count:
                break
        if refused:
            logger.warning(
                "No grasp from above fits these objects of %s, which are left out: %s.",
                self.folder,
                "; ".join(refused),
            )
        if not taken:
            kind = "held-out " if self.held_out else ""
            raise ValueError(f"{self.folder} has no {kind}object that the gripper can grasp.")
        return taken

    def _read(self, name: str, path: Path) -> MeshObject | None:
        """Returns an object, or None if its file cannot be used."""
        try:
            return MeshObject(name, load_mesh(path, unit_m=self.unit_m, up=self.up))
        except ValueError as error:
            logger.warning("The object %s is left out: %s", name, error)
            return None


def _described(item: MeshObject) -> str:
    size = " x ".join(f"{1e3 * side:.3g}" for side in np.ptp(item.points, axis=0))
    return f"{item.name} ({size} mm)"


def _place(name: str) -> float:
    """Returns a number of a name, 0 to 1, the same on all machines."""
    return zlib.crc32(name.encode()) / 2**32
