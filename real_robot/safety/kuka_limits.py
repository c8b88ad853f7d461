"""KUKA embodiments by their number of arms, their ports in order, and their safety limits."""

from collections.abc import Mapping
from typing import Any

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.driver_interface.interlocks import STRAYED_RAD
from stringline.real_robot.safety.limits import SafetyLimits

KUKA_EMBODIMENTS: Mapping[str, Embodiment] = {"one": IIWA14, "two": IIWA14_BIMANUAL}
# Largest distance of targets from a blocked arm. Emulated arms lag by 0.06 s: 0.1 rad at 1.7 rad/s.
_TRACKING_RAD = 0.2


def kuka_embodiment(arms: str) -> Embodiment:
    """Returns the embodiment with "one" or "two" arms.

    Raises:
        ValueError: The number is unknown.
    """
    if arms not in KUKA_EMBODIMENTS:
        raise unknown_name("number of KUKA arms", arms, KUKA_EMBODIMENTS)
    return KUKA_EMBODIMENTS[arms]


def ports_in_order(embodiment: Embodiment, ports: Mapping[str, str]) -> dict[str, str]:
    """Returns ports in the order of the arms of an embodiment, which is that of commands.

    Raises:
        ValueError: The ports are not those of its arms.
    """
    if set(ports) != set(embodiment.arms):
        found = ", ".join(ports) or "none"
        needed = ", ".join(embodiment.arms)
        raise ValueError(
            f"The configuration has ports for the arms {found}; {embodiment.name} has the arms "
            f"{needed}: robot.arms, robot.ports."
        )
    return {arm: ports[arm] for arm in embodiment.arms}


def kuka_limits(embodiment: Embodiment, **settings: Any) -> SafetyLimits:
    """Returns limits whose tracking is below the distance at which drivers report a strayed arm.

    So the commands of a blocked arm wait for it, and it does not count as strayed. The settings are
    arguments of `SafetyLimits.of`; `tracking_rad` is 0.2 by default.

    Raises:
        ValueError: A value is out of range; `tracking_rad` must be below 0.3.
    """
    tracking_rad = settings.setdefault("tracking_rad", _TRACKING_RAD)
    Range(above=0, below=STRAYED_RAD).check(tracking_rad=tracking_rad)
    return SafetyLimits.of(embodiment, **settings)
