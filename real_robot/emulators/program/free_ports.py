"""UDP ports that nobody uses, for emulators and whoever is to find them."""

import socket
from contextlib import ExitStack


def free_udp_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Returns so many different ports.

    They are free again when somebody opens them, and may be taken by then.
    """
    with ExitStack() as stack:
        # All at once, so that they differ.
        taken = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for one in taken:
            one.bind((address, 0))
        return [int(one.getsockname()[1]) for one in taken]
