"""KUKA's arms by their number, and their ports in order."""

from collections.abc import Mapping

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.datasets.names import unknown_name

KUKA_BODIES: Mapping[str, Embodiment] = {"one": IIWA14, "two": IIWA14_BIMANUAL}


def kuka_body(arms: str) -> Embodiment:
    """Returns the body of so many arms.

    Raises:
        ValueError: There is none.
    """
    if arms not in KUKA_BODIES:
        raise unknown_name("number of KUKA arms", arms, KUKA_BODIES)
    return KUKA_BODIES[arms]


def ports_in_order(body: Embodiment, ports: Mapping[str, str]) -> dict[str, str]:
    """Returns ports in the order of the body's arms, which is that of commands.

    Raises:
        ValueError: There is no port for an arm, or one for an arm that there is not.
    """
    if set(ports) != set(body.arms):
        found, needed = ", ".join(ports) or "none", ", ".join(body.arms)
        raise ValueError(f"There are ports for the arms {found}; {body.name} has {needed}: robot.arms, robot.ports.")
    return {arm: ports[arm] for arm in body.arms}
