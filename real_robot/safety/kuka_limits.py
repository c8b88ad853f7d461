"""KUKA's arms by their number, their ports in order, and what the filter holds them to."""

from collections.abc import Mapping
from typing import Any

from stringline.datasets.contract.arguments import Range, unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.driver_interface.interlocks import STRAYED_RAD
from stringline.real_robot.safety.limits import SafetyLimits

KUKA_BODIES: Mapping[str, Embodiment] = {"one": IIWA14, "two": IIWA14_BIMANUAL}
# Targets go no farther ahead of an arm that is held up. Emulated arms lag 0.06 s behind: 0.1 rad at
# 1.7 rad/s.
_TRACKING_RAD = 0.2


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
        found = ", ".join(ports) or "none"
        needed = ", ".join(body.arms)
        raise ValueError(
            f"There are ports for the arms {found}; {body.name} has {needed}: robot.arms, "
            f"robot.ports."
        )
    return {arm: ports[arm] for arm in body.arms}


def kuka_limits(body: Embodiment, **settings: Any) -> SafetyLimits:
    """Returns limits in which an arm that is held up is not taken for one that has strayed: its commands wait for it before.

    Args:
        body: With one arm or two.
        **settings: Of `SafetyLimits.of`; `tracking_rad` is 0.2 if it is not among them.

    Raises:
        ValueError: A value is out of range; `tracking_rad` is not below the 0.3 rad at which the
            drivers give an arm up.
    """
    tracking_rad = settings.setdefault("tracking_rad", _TRACKING_RAD)
    Range(above=0, below=STRAYED_RAD).check(tracking_rad=tracking_rad)
    return SafetyLimits.of(body, **settings)
