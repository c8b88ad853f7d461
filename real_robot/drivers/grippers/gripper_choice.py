"""Grippers by configuration: the name of a transport, and the settings of each transport."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.driver_interface.gripper import GripperSettings
from stringline.real_robot.drivers.fri.controller_io import IoGripper
from stringline.real_robot.drivers.fri.enums import IoType
from stringline.real_robot.drivers.lcm.wsg import WsgGripper

FRI_OUTPUT = "fri_output"
WSG_LCM = "wsg_lcm"


def gripper_settings(
    settings: Mapping[str, Any] | None,
    arms: Collection[str],
    transports: Collection[str] = (FRI_OUTPUT, WSG_LCM),
) -> GripperSettings | None:
    """Returns the settings of grippers, which are the same for all arms; None without grippers.

    Args:
        settings: `transport`, or None without grippers, and the settings of each transport under
            its name.
        arms: Names of the arms.
        transports: Transports that are possible with the arms.

    Raises:
        ValueError: A setting is unknown or out of range.
    """
    if settings is None:
        return None
    for name in settings:
        if name not in ("transport", *_MAKERS):
            raise unknown_name("setting of a gripper", str(name), ("transport", *_MAKERS))
    transport = settings.get("transport")
    if transport is None:
        return None
    if transport not in transports:
        raise unknown_name("transport of a gripper for these arms", str(transport), transports)
    made = _MAKERS[transport](settings.get(transport) or {})
    if isinstance(made, WsgGripper) and len(
        {name for arm in arms for name in made.channels(arm)}
    ) < 2 * len(arms):
        raise ValueError(
            f"The grippers of {', '.join(arms)} would share the channels {made.command_channel} "
            f"and {made.status_channel}; each needs its own, such as SCHUNK_WSG_COMMAND_{{arm}} "
            f"and SCHUNK_WSG_STATUS_{{arm}}."
        )
    return made


def _fri_output(settings: Mapping[str, Any]) -> IoGripper:
    chosen = _known(IoGripper, FRI_OUTPUT, settings)
    kind = str(chosen.pop("kind", IoType.ANALOG.name))
    if kind not in IoType.__members__:
        raise unknown_name("kind of output", kind, IoType.__members__)
    return IoGripper(kind=IoType[kind], **chosen)


def _wsg_lcm(settings: Mapping[str, Any]) -> WsgGripper:
    return WsgGripper(**_known(WsgGripper, WSG_LCM, settings))


def _known(
    kind: type[IoGripper] | type[WsgGripper], transport: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the settings by name; raises ValueError for an unknown name or a wrong type."""
    known = {field.name: field.type for field in fields(kind)}
    for name, value in settings.items():
        if name not in known:
            raise unknown_name(f"setting of {transport}", str(name), known)
        if known[name] is not IoType and not _fits(value, known[name]):
            raise ValueError(
                f"{transport}.{name} is {value!r}; allowed: {_TYPE_NAMES[str(known[name])]}."
            )
    return {str(name): value for name, value in settings.items()}


def _fits(value: object, kind: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, kind | int if kind in (float, float | None) else kind)


_TYPE_NAMES = {
    str(float): "a number",
    str(float | None): "a number, or null",
    str(int): "a whole number",
    str(str): "text",
    str(str | None): "text, or null",
}
_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], GripperSettings]] = {
    FRI_OUTPUT: _fri_output,
    WSG_LCM: _wsg_lcm,
}
