"""A member of a multicast group of LCM, which publishes to all members without an acknowledgement.

Huang, Olson and Moore (2010), LCM: Lightweight Communications and Marshalling. Pure Python: the
library is not needed. A group is used through one network interface only; by default that is the
loopback interface, which no datagram leaves.
"""

import ipaddress
import logging
import socket
from typing import NamedTuple

from stringline.real_robot.driver_interface.driver import BusListener
from stringline.real_robot.drivers.lcm.datagram import (
    LONGEST_DATAGRAM,
    Whole,
    pack_datagrams,
    unpack_datagram,
)
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.drivers.lcm.reassembly import Reassembly, Source

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "239.255.76.67:7667"
LOOPBACK = "127.0.0.1"

# The newest message counts, so all are received; but a flood must not delay the end of a cycle.
_MOST_AT_ONCE = 4096
_BUFFER_SIZE = 1 << 20  # Other programs may publish images in the same group.
# Linux's IP_MULTICAST_ALL, which Python does not name: without it, a socket receives from groups
# that other sockets joined.
_MULTICAST_ALL = 49


class LcmMessage(NamedTuple):
    """A received message.

    Attributes:
        payload: Bytes of an encoded `LcmType`.
        source: Address and port of the publisher; `LcmLink.own` for messages of this link.
        sequence: Number of the message, counted by the publisher over all its channels, mod 2^32.
    """

    channel: str
    payload: bytes
    source: Source
    sequence: int


def group_of(address: str) -> tuple[str, int]:
    """Returns the parts of `group:port`.

    Raises:
        ValueError: It has another form, or the group is not a multicast group of IPv4.
    """
    group, _, number = address.rpartition(":")
    try:
        multicast = ipaddress.IPv4Address(group).is_multicast
    except ValueError:
        multicast = False
    if (
        not multicast
        or not (number.isascii() and number.isdigit())
        or not 0 < int(number) < 1 << 16
    ):
        raise ValueError(
            f"The address of LCM is {address!r}; allowed: group:port with a multicast group, such "
            f"as {DEFAULT_ADDRESS}."
        )
    return group, int(number)


class LcmLink:
    """A publisher and subscriber. Nothing is opened before `open`.

    Args:
        address: `group:port`, as in LCM's URL `udpm://group:port`.
        interface: Address of this computer on the network of the group.
        ttl: 0: datagrams stay on this computer; 1: on its network.
        channels: Channels to receive; None: all.

    Attributes:
        lost: Whether the network interface is gone.
        broken: Number of datagrams that are not LCM's.
        listener: Receives a copy of all datagrams of the channels and of those published, or None.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        interface: str = LOOPBACK,
        ttl: int = 0,
        channels: frozenset[str] | None = None,
    ) -> None:
        self._group = group_of(address)
        self.address = address
        try:
            self._interface = str(ipaddress.IPv4Address(interface))
        except ValueError as error:
            raise ValueError(
                f"The interface is {interface!r}; allowed: an IPv4 address of this computer, such "
                f"as {LOOPBACK}."
            ) from error
        if ttl not in (0, 1):
            raise ValueError(
                f"ttl is {ttl}; allowed: 0, which stays on this computer, and 1, which stays on "
                f"its network."
            )
        self._ttl = ttl
        self._channels = channels
        self.lost = False
        self.broken = 0
        self.listener: BusListener | None = None
        self._in: socket.socket | None = None
        self._out: socket.socket | None = None
        self._reassembly = Reassembly()
        self._sequence = 0
        self._own: Source = ("", 0)

    @property
    def own(self) -> Source:
        """Source of this link's own messages, once it is open."""
        return self._own

    @property
    def next_sequence(self) -> int:
        """Number of the next message of this link."""
        return self._sequence

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return -1 if self._in is None else self._in.fileno()

    def open(self) -> None:
        """Joins the group.

        Raises:
            ValueError: This computer lacks that interface, or another program has the port.
        """
        self.close()
        receiving, sending = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        try:
            self._join(receiving)
            sending.setblocking(False)
            sending.bind((self._interface, 0))
            sending.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self._interface)
            )
            sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self._ttl)
            sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        except OSError as error:
            receiving.close()
            sending.close()
            raise ValueError(
                f"The multicast group {self.address} cannot be joined on {self._interface}: "
                f"{error.strerror}."
            ) from error
        self._in = receiving
        self._out = sending
        self._own = sending.getsockname()
        self._reassembly = Reassembly()
        self._sequence = 0
        self.lost = False

    def _join(self, receiving: socket.socket) -> None:
        receiving.setblocking(False)
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_SIZE)
        receiving.bind(self._group)
        group = socket.inet_aton(self._group[0])
        interface = socket.inet_aton(self._interface)
        receiving.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + interface)
        receiving.setsockopt(socket.IPPROTO_IP, _MULTICAST_ALL, 0)

    def close(self) -> None:
        """Leaves the group."""
        for one in (self._in, self._out):
            if one is not None:
                one.close()
        self._in = self._out = None

    def receive(self) -> list[LcmMessage]:
        """Returns the messages that have arrived, oldest first, without waiting."""
        found: list[LcmMessage] = []
        assert self._in is not None
        for _ in range(_MOST_AT_ONCE):
            try:
                data, source = self._in.recvfrom(LONGEST_DATAGRAM + 1)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(error)
                break
            message = self._take(data, source)
            if message is not None:
                found.append(message)
        return found

    def _take(self, data: bytes, source: Source) -> LcmMessage | None:
        try:
            datagram = unpack_datagram(data)
        except LcmDecodeError:
            self.broken += 1
            return None
        whole: tuple[str, bytes] | None
        if isinstance(datagram, Whole):
            whole = (datagram.channel, datagram.message) if self._wanted(datagram.channel) else None
        else:
            whole = self._reassembly.take(source, datagram)
        if whole is None or not self._wanted(whole[0]):
            return None
        if self.listener is not None:
            self.listener.received(data)
        return LcmMessage(*whole, source, datagram.sequence)

    def _wanted(self, channel: str) -> bool:
        return self._channels is None or channel in self._channels

    def publish(self, channel: str, payload: bytes) -> bool:
        """Sends a message to the group; returns whether it was sent."""
        return all(self._send(data) for data in self._packed(channel, payload))

    def _packed(self, channel: str, payload: bytes) -> list[bytes]:
        datagrams = pack_datagrams(self._sequence, channel, payload)
        self._sequence = (self._sequence + 1) % (1 << 32)
        return datagrams

    def _send(self, data: bytes) -> bool:
        assert self._out is not None
        try:
            self._out.sendto(data, self._group)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self._lose(error)
            return False
        self.lost = False
        if self.listener is not None:
            self.listener.sent(data)
        return True

    def _lose(self, error: OSError) -> None:
        if not self.lost:
            log.error("The multicast group %s is lost: %s.", self.address, error.strerror)
        self.lost = True
