"""Names of the LCM channels of one drake-iiwa-driver."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from stringline.datasets.contract.argument_checks import unknown_name


@dataclass(frozen=True)
class Channels:
    """Channels of one program, whose arms share its messages.

    Attributes:
        command: Its commands: `--lcm_command_channel`.
        status: States of the arms: `--lcm_status_channel`.
        telemetry: States of clocks: `--lcm_status_telemetry_channel`.
    """

    command: str = "IIWA_COMMAND"
    status: str = "IIWA_STATUS"
    telemetry: str = "IIWA_STATUS_TELEMETRY"

    def __post_init__(self) -> None:
        """Checks that the names differ."""
        if len({self.command, self.status, self.telemetry}) != 3 or not all(
            (self.command, self.status, self.telemetry)
        ):
            raise ValueError(f"The channels of a driver program must have three names; got {self}.")

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Self:
        """Returns the channels of settings; those that are not given have their usual names.

        Raises:
            ValueError: A setting is unknown.
        """
        known = [field.name for field in fields(cls)]
        for name in settings or {}:
            if name not in known:
                raise unknown_name("channel of a driver program", str(name), known)
        return cls(**{name: str(value) for name, value in (settings or {}).items()})

    @property
    def names(self) -> tuple[str, str, str]:
        """All of them."""
        return self.command, self.status, self.telemetry


def program_groups(
    ports: Mapping[str, str], channels: Mapping[str, Channels]
) -> dict[tuple[str, Channels], list[str]]:
    """Returns the arms of each program by its address and channels, all in the order of the arms.

    Raises:
        ValueError: Two programs of one group share a channel.
    """
    found: dict[tuple[str, Channels], list[str]] = {}
    for name, address in ports.items():
        found.setdefault((address, channels[name]), []).append(name)
    for address in dict.fromkeys(ports.values()):
        names = [name for at, one in found if at == address for name in one.names]
        if shared := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"Two driver programs on {address} share the channels {', '.join(shared)}; arms "
                f"of one program have all channels in common, those of two have none."
            )
    return found
