"""The KUKA cell with another arm: built in, from a file, or of MuJoCo Menagerie.

Table, cameras, home pose of the gripper and range of starts are those of the KUKA cell.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.catalogue import EMBODIMENTS
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.embodiment_source import (
    MENAGERIE,
    is_source,
    load_parts,
    menagerie_names,
)
from stringline.datasets.embodiments.iiwa14 import ALONE, IIWA14
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import pose
from stringline.sim.robots.file_arm import FileArm
from stringline.sim.robots.workcells import KUKA_CELL, Workcell

OPTION = "task.embodiment"
# Places (x, y) on the table that the gripper must reach from above, metres.
CORNERS = ((0.46, -0.2), (0.46, 0.2), (0.68, -0.2), (0.68, 0.2))
ABOVE_TABLE_M = 0.03
HOME_DECIMALS = 5  # So the home pose of a record does not depend on the processor.
# Share of the velocity limit of the fastest joint that experts use.
SPEED_SHARE = KUKA_CELL.top_speed / float(np.max(IIWA14.velocity_limits[:-1]))


@lru_cache(8)
def arm_cell(source: str) -> Workcell:
    """Returns the KUKA cell with the arm that a text names; see `load_embodiment`.

    An arm without a gripper gets that of the KUKA.

    Raises:
        ValueError: There is no such arm, or the cell cannot have it: it has two arms, no gripper or
            no drives, its files are missing, or it does not reach the objects.
    """
    if source == IIWA14.name:
        return KUKA_CELL
    if source in EMBODIMENTS:
        raise ValueError(
            f"{OPTION} is {source!r}, which has two arms; allowed: one arm, such as {IIWA14.name} "
            f"or {MENAGERIE}ur5e."
        )
    if not is_source(source):
        known = [IIWA14.name, *(f"{MENAGERIE}{name}" for name in menagerie_names())]
        raise unknown_name(OPTION, source, known)
    arm = FileArm.of(*load_parts(source), IIWA14.cameras)
    body = replace(arm.embodiment, home=_home(arm.embodiment))
    fastest = max(joint.velocity for joint in body.joints if joint.kind == "revolute")
    return replace(
        KUKA_CELL,
        embodiment=body,
        model=arm.model,
        fingers=arm.fingers,
        pads=arm.pads,
        source=source,
        top_speed=min(KUKA_CELL.top_speed, SPEED_SHARE * fastest),
    )


def _home(body: Embodiment) -> Vector:
    """Returns the joints (J,) with the gripper at the home pose of the KUKA.

    Raises:
        ValueError: The arm does not reach it, or a corner of the objects' places.
    """
    T_home = IIWA14.forward_kinematics(IIWA14.home)[ALONE]
    kinematics = InverseKinematics(body)
    goals = [T_home, *(pose((x, y, ABOVE_TABLE_M), T_home[:3, :3]) for x, y in CORNERS)]
    q = body.home
    found: list[Vector] = []
    for goal in goals:
        try:
            q = kinematics.solve({ALONE: goal}, found[0] if found else q)
        except OutOfReachError as error:
            raise ValueError(
                f"{body.name} cannot do the tasks of the KUKA cell, because its gripper does not "
                f"reach {np.round(goal[:3, 3], 2).tolist()} m, pointing down. {error}"
            ) from error
        found.append(q)
    return np.round(found[0], HOME_DECIMALS)
