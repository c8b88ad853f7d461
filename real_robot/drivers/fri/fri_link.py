"""The UDP port to which one controller sends, and from which it is answered."""

import logging
import socket

from stringline.real_robot.driver_interface.driver import BusListener
from stringline.real_robot.drivers.fri.messages import LONGEST_MESSAGE

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 256  # A flood must not keep a cycle from its end.


def address_of(port: str) -> tuple[str, int]:
    """Returns the parts of `address:number`.

    Raises:
        ValueError: The port has another form.
    """
    address, _, number = port.rpartition(":")
    if not address or not number.isdigit() or not 0 < int(number) < 1 << 16:
        raise ValueError(
            f"The port is {port!r}; allowed: address:number, such as 192.170.10.1:30200."
        )
    return address, int(number)


class FriLink:
    """A port to one controller. Nothing is opened before `open`.

    Args:
        port: `address:number` of this computer, to which the controller sends.
        controller: Address of the controller; if None, the source of the first datagram.

    Attributes:
        lost: Whether the network interface is gone.
        strangers: Number of datagrams from other addresses, which are dropped.
        listener: Receives a copy of all bytes, or None.
    """

    def __init__(self, port: str, controller: str | None = None) -> None:
        self._address = address_of(port)
        self.port = port
        self._controller = controller
        self.lost = False
        self.strangers = 0
        self.listener: BusListener | None = None
        self._socket: socket.socket | None = None
        self._known = controller
        self._source = ("", 0)

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return -1 if self._socket is None else self._socket.fileno()

    def open(self) -> None:
        """Binds the port.

        Raises:
            ValueError: It is in use, or this computer lacks that address.
        """
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.bind(self._address)
        except OSError as error:
            opened.close()
            raise ValueError(
                f"The UDP port {self.port} cannot be opened: {error.strerror}."
            ) from error
        self._socket = opened
        self.lost = False
        self._known = self._controller

    def close(self) -> None:
        """Closes the port; a controller without answers stops its arm by itself."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def receive(self) -> list[bytes]:
        """Returns the controller's datagrams that have arrived, oldest first, without waiting."""
        found: list[bytes] = []
        assert self._socket is not None
        for _ in range(_MOST_AT_ONCE):
            try:
                data, source = self._socket.recvfrom(LONGEST_MESSAGE + 1)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(error)
                break
            if not self._is_controller(source[0]):
                self.strangers += 1
                continue
            self._source = source
            self.lost = False
            if self.listener is not None:
                self.listener.received(data)
            found.append(data)
        return found

    def _is_controller(self, address: str) -> bool:
        """Returns whether that is the controller's address; without one, the first address is."""
        self._known = self._known or address
        return address == self._known

    def send(self, data: bytes) -> bool:
        """Answers the controller; returns whether the datagram was sent."""
        assert self._socket is not None
        try:
            self._socket.sendto(data, self._source)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self._lose(error)
            return False
        if self.listener is not None:
            self.listener.sent(data)
        return True

    def _lose(self, error: OSError) -> None:
        if not self.lost:
            log.error("The UDP port %s is lost: %s.", self.port, error.strerror)
        self.lost = True
