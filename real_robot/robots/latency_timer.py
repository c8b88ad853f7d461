"""How long a USB serial adapter keeps bytes back before it hands them over: FTDI's `latency_timer`."""

from pathlib import Path

WANTED_MS = 1


def latency_timer_ms(port: str, system: Path = Path("/sys")) -> int | None:
    """Returns the setting of a port in milliseconds, or None where it has none: no FTDI adapter, or no such port.

    Args:
        port: Its device file, or a link to it as udev rules make them.
        system: Where the kernel shows its devices.
    """
    name = Path(port).resolve().name
    for place in (
        f"bus/usb-serial/devices/{name}/latency_timer",
        f"class/tty/{name}/device/latency_timer",
    ):
        try:
            return int((system / place).read_text())
        except (OSError, ValueError):
            continue
    return None


def demand_quick(port: str, system: Path = Path("/sys")) -> str:
    """Returns in words what a port's adapter does.

    Raises:
        ValueError: It keeps bytes back for too long.
    """
    found = latency_timer_ms(port, system)
    if found is not None and found > WANTED_MS:
        setting = f"/sys/bus/usb-serial/devices/{Path(port).resolve().name}/latency_timer"
        raise ValueError(
            f"{port} keeps bytes back for {found} ms, too long for 100 cycles per second. Set it "
            f"to {WANTED_MS} by the udev "
            f"rule in docs/hardware-aloha.md, or now: echo {WANTED_MS} | sudo tee {setting}"
        )
    return f"{port} not known" if found is None else f"{port} {found} ms"
