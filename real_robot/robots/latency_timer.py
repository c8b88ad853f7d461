"""FTDI's `latency_timer`: how long a USB serial adapter collects bytes before it passes them on."""

from pathlib import Path

WANTED_MS = 1


def latency_timer_ms(port: str, system: Path = Path("/sys")) -> int | None:
    """Returns the setting of a port in milliseconds; None for other adapters and missing ports."""
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


def check_latency_timer(port: str, system: Path = Path("/sys")) -> str:
    """Checks the setting of a port and describes it.

    Raises:
        ValueError: The adapter delays bytes for too long.
    """
    found = latency_timer_ms(port, system)
    if found is not None and found > WANTED_MS:
        setting = f"/sys/bus/usb-serial/devices/{Path(port).resolve().name}/latency_timer"
        raise ValueError(
            f"{port} delays bytes by {found} ms, too long for 100 cycles per second. Set "
            f"{WANTED_MS} ms with the udev rule in docs/hardware-aloha.md, or until the next "
            f"restart: echo {WANTED_MS} | sudo tee {setting}"
        )
    return f"{port} not known" if found is None else f"{port} {found} ms"
