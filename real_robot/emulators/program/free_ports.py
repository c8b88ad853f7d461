"""Free UDP ports for emulators."""

import socket
from contextlib import ExitStack


def free_udp_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Returns that many different ports; another program may still open them before the caller."""
    with ExitStack() as stack:
        # All are open at once, so that they differ.
        taken = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for one in taken:
            one.bind((address, 0))
        return [int(one.getsockname()[1]) for one in taken]
