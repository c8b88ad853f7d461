"""Channels of emulated driver programs: the usual ones, or with a prefix of their own where there are several."""

from stringline.real_robot.drivers.lcm.channels import Channels

USUAL = "IIWA"


def channels_of(prefix: str) -> Channels:
    """Returns the channels of the program that has this prefix."""
    return Channels(f"{prefix}_COMMAND", f"{prefix}_STATUS", f"{prefix}_STATUS_TELEMETRY")
