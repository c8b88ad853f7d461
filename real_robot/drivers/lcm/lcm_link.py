"""A place in a multicast group of LCM: what it publishes goes to everybody there, and nobody says that it came.

Huang, Olson and Moore (2010), LCM: Lightweight Communications and Marshalling. Pure Python: the
library is not needed. A group is heard and spoken to through one network interface only; by default
that is the loopback, which no datagram leaves.
"""

import ipaddress
import logging
import socket
from typing import NamedTuple

from stringline.real_robot.driver_interface.driver import Tap
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

# The newest counts, so all of it is taken; but a flood must not keep a cycle from its end.
_MOST_AT_ONCE = 4096
_BUFFER_SIZE = 1 << 20  # Asked for; images of others may be on the same group.
# Linux's IP_MULTICAST_ALL, which Python has no name for: without it, a socket hears groups that
# others joined elsewhere.
_MULTICAST_ALL = 49


class LcmMessage(NamedTuple):
    """A message that came in.

    Attributes:
        channel: That it is on.
        payload: Its bytes, an encoded `LcmType`.
        source: Address and port of its publisher; `LcmLink.own` for what this link has published
            itself.
        sequence: The publisher's counter over all its channels, modulo 2^32.
    """

    channel: str
    payload: bytes
    source: Source
    sequence: int


def group_of(address: str) -> tuple[str, int]:
    """Returns the parts of `group:port`.

    Raises:
        ValueError: It is not of that form, or the group is none of IPv4's multicast groups.
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
            f"The address {address!r} of LCM is none; allowed: group:port, such as "
            f"{DEFAULT_ADDRESS}."
        )
    return group, int(number)


class LcmLink:
    """A publisher and subscriber. Nothing is opened before `open`.

    Args:
        address: `group:port`, as in LCM's URL `udpm://group:port`.
        interface: Address of this computer on the network of the group.
        ttl: 0: datagrams stay on this computer; 1: on its network.
        channels: Those that are listened to; None: all.

    Attributes:
        address: As given.
        lost: Whether the network interface is gone.
        broken: Datagrams that were none of LCM's.
        tap: Listens, if there is one: to the datagrams of the channels, whoever sent them, and to
            what is published.

    Raises:
        ValueError: An argument is none of these.
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
                f"The interface {interface!r} is none; allowed: an IPv4 address of this computer, "
                f"such as {LOOPBACK}."
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
        self.tap: Tap | None = None
        self._in: socket.socket | None = None
        self._out: socket.socket | None = None
        self._reassembly = Reassembly()
        self._sequence = 0
        self._own: Source = ("", 0)

    @property
    def own(self) -> Source:
        """Where this link's own messages come from, once it is open."""
        return self._own

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return -1 if self._in is None else self._in.fileno()

    def open(self) -> None:
        """Joins the group.

        Raises:
            ValueError: The interface is none of this computer's, or somebody who does not share has
                the port.
        """
        self.close()
        heard, told = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        try:
            self._join(heard)
            told.setblocking(False)
            told.bind((self._interface, 0))
            told.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self._interface)
            )
            told.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self._ttl)
            told.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        except OSError as error:
            heard.close()
            told.close()
            raise ValueError(
                f"The multicast group {self.address} cannot be joined on {self._interface}: "
                f"{error.strerror}."
            ) from error
        self._in = heard
        self._out = told
        self._own = told.getsockname()
        self._reassembly = Reassembly()
        self._sequence = 0
        self.lost = False

    def _join(self, heard: socket.socket) -> None:
        heard.setblocking(False)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_SIZE)
        heard.bind(self._group)
        group = socket.inet_aton(self._group[0])
        interface = socket.inet_aton(self._interface)
        heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + interface)
        heard.setsockopt(socket.IPPROTO_IP, _MULTICAST_ALL, 0)

    def close(self) -> None:
        """Leaves the group."""
        for one in (self._in, self._out):
            if one is not None:
                one.close()
        self._in = self._out = None

    def receive(self) -> list[LcmMessage]:
        """Returns the messages that have come in, oldest first, without waiting."""
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
        if self.tap is not None:
            self.tap.received(data)
        return LcmMessage(*whole, source, datagram.sequence)

    def _wanted(self, channel: str) -> bool:
        return self._channels is None or channel in self._channels

    def publish(self, channel: str, payload: bytes) -> bool:
        """Sends a message to everybody in the group; says whether it is on its way.

        Raises:
            ValueError: The channel's name or the message is too long.
        """
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
        if self.tap is not None:
            self.tap.sent(data)
        return True

    def _lose(self, error: OSError) -> None:
        if not self.lost:
            log.error("The multicast group %s is lost: %s.", self.address, error.strerror)
        self.lost = True
