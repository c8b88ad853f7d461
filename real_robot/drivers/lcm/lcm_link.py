"""LCM in pure Python: messages, datagrams, and members of a multicast group.

Huang, Olson and Moore (2010), LCM: Lightweight Communications and Marshalling. A member publishes
to all members without an acknowledgement. A group is used through one network interface only; by
default that is the loopback interface, which no datagram leaves.

A message is a fingerprint of its type, then the members one after the other, big-endian. Members
are numbers, or rows of numbers whose length is another member. Any bytes are a message or an error.

A datagram is a message that fits into one (`LC02`), or a fragment of it (`LC03`). Layouts are those
of LCM's documentation, `docs/content/udp-multicast-protocol.md`; sizes are those of its C library.
Any bytes are a datagram or an error. Messages are put together from their fragments in bounded
memory; fragments may be late, duplicated or lost.

This codec stands in place of the classes that lcm-gen generates. Those are faster
(benchmarks/bridge.py, on one core: 2.7 us to decode and 1.5 us to encode a message, here 15.9 us
and 2.9 us), but would add generated code and the library lcm to the device process. The same holds
for `Reassembly`, which the library does in a thread of its own. Here time and memory are bounded by
the length of a datagram, and a fuzz test covers all of it; 19 us are 0.4 % of a cycle of 5 ms.
"""

import ipaddress
import logging
import socket
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from stringline.real_robot.driver_interface.driver import BusListener

LcmValue = int | float | tuple[float, ...]

_FORMATS = {"int32_t": "i", "int64_t": "q", "double": "d"}
_SEED = 0x12345678
_MASK = (1 << 64) - 1
_VARIABLE = 1  # A dimension whose size is another member.
_HEAD = struct.Struct(">Q")


class LcmDecodeError(ValueError):
    """Bytes that are not such a message."""


@dataclass(frozen=True)
class Member:
    """A member of a type.

    Attributes:
        kind: `int32_t`, `int64_t` or `double`.
        size: Name of an earlier member with the length of a row; empty for a number.
    """

    name: str
    kind: str
    size: str = ""


@dataclass(frozen=True)
class LcmType:
    """A type of message.

    Attributes:
        name: Name in errors; the fingerprint does not contain it.
        members: Members in the order on the wire.
    """

    name: str
    members: tuple[Member, ...]

    @cached_property
    def fingerprint(self) -> int:
        """Hash of the members, 64 bits, by the rule of lcm-gen."""
        value = _SEED
        for member in self.members:
            value = _with_text(_with_text(value, member.name), member.kind)
            value = _with(value, 1 if member.size else 0)
            if member.size:
                value = _with_text(_with(value, _VARIABLE), member.size)
        return (value << 1 | value >> 63) & _MASK

    def encode(self, values: Mapping[str, int | float | Sequence[float]]) -> bytes:
        """Returns the bytes of a message; lengths are set, and rows that are not given are empty.

        Raises:
            ValueError: Rows of one length differ, or a value is missing or out of range.
        """
        lengths = self._lengths(values)
        parts = [_HEAD.pack(self.fingerprint)]
        for member in self.members:
            if member.name in lengths:
                row: tuple[float, ...] = (lengths[member.name],)
            elif member.name not in values and not member.size:
                raise ValueError(f"{self.name} needs {member.name}.")
            else:
                value = values.get(member.name, ())
                row = (value,) if isinstance(value, int | float) else tuple(value)
            try:
                parts.append(struct.pack(f">{len(row)}{_FORMATS[member.kind]}", *row))
            except struct.error as error:
                raise ValueError(f"{self.name}.{member.name} cannot be {row}: {error}.") from error
        return b"".join(parts)

    def _lengths(self, values: Mapping[str, int | float | Sequence[float]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for member in self.members:
            if not member.size:
                continue
            row = values.get(member.name, ())
            count = 1 if isinstance(row, int | float) else len(row)
            if found.setdefault(member.size, count) != count:
                raise ValueError(
                    f"{self.name}.{member.name} has {count} entries; others of {member.size} have "
                    f"{found[member.size]}."
                )
        return found

    def decode(self, data: bytes) -> dict[str, LcmValue]:
        """Returns the members of a message.

        Raises:
            LcmDecodeError: The bytes are not such a message.
        """
        if len(data) < _HEAD.size or _HEAD.unpack_from(data)[0] != self.fingerprint:
            raise LcmDecodeError(
                f"{data[: _HEAD.size].hex() or 'Nothing'} is not the fingerprint of {self.name}: "
                f"another type."
            )
        at = _HEAD.size
        found = dict[str, LcmValue]()
        for member in self.members:
            size = found[member.size] if member.size else 1
            form = _FORMATS[member.kind]
            if not isinstance(size, int) or not 0 <= size <= len(data) // 8 + 1:
                raise LcmDecodeError(f"{self.name}.{member.name} claims {size} entries.")
            layout = f">{size}{form}"
            if struct.calcsize(layout) > len(data) - at:
                raise LcmDecodeError(f"{self.name} is truncated in {member.name}.")
            row = struct.unpack_from(layout, data, at)
            found[member.name] = row if member.size else row[0]
            at += struct.calcsize(layout)
        if at != len(data):
            raise LcmDecodeError(f"{self.name} has {len(data) - at} bytes too many.")
        return found


def _with(value: int, byte: int) -> int:
    # In C the number is signed, so that its shift to the right keeps the sign.
    shifted = (value - (1 << 64) if value >> 63 else value) >> 55
    return (((value << 8) ^ shifted) + byte) & _MASK


def _with_text(value: int, text: str) -> int:
    value = _with(value, len(text))
    for byte in text.encode():
        value = _with(value, byte)
    return value


LONGEST_CHANNEL = 63
LONGEST_DATAGRAM = 65_507  # Of UDP over IPv4.

_SMALL = b"LC02"
_FRAGMENT = b"LC03"
_SMALL_HEAD = struct.Struct(">4sI")
_FRAGMENT_HEAD = struct.Struct(">4sIIIHH")
# Of a channel's name, its end and a message together.
_LONGEST_SMALL = LONGEST_DATAGRAM - _SMALL_HEAD.size
_LONGEST_PIECE = LONGEST_DATAGRAM - _FRAGMENT_HEAD.size
_MOST_PIECES = 0xFFFF
LONGEST_MESSAGE = _MOST_PIECES * _LONGEST_PIECE - LONGEST_CHANNEL - 1


class Whole(NamedTuple):
    """A message in one datagram.

    Attributes:
        sequence: Number of the message at its publisher, modulo 2^32.
    """

    sequence: int
    channel: str
    message: bytes


class Fragment(NamedTuple):
    """A fragment of a message.

    Attributes:
        sequence: Number of the message, the same for all its fragments.
        size: Bytes of the whole message.
        offset: Offset of the fragment in the message.
        number: Number of the fragment, from 0.
        channel: Name of the channel, only in the first fragment.
        piece: Bytes of the fragment.
    """

    sequence: int
    size: int
    offset: int
    number: int
    total: int
    channel: str
    piece: bytes


def pack_datagrams(sequence: int, channel: str, message: bytes) -> list[bytes]:
    """Returns the datagrams of a message, in order.

    Raises:
        ValueError: The channel's name or the message is too long.
    """
    name = channel.encode()
    if not 0 < len(name) <= LONGEST_CHANNEL or b"\0" in name or len(message) > LONGEST_MESSAGE:
        raise ValueError(
            f"A channel {channel!r:.80} and {len(message)} bytes; allowed: names of 1 to "
            f"{LONGEST_CHANNEL} bytes and up to {LONGEST_MESSAGE} bytes."
        )
    number = sequence % (1 << 32)
    body = name + b"\0" + message
    if len(body) <= _LONGEST_SMALL:
        return [_SMALL_HEAD.pack(_SMALL, number) + body]
    pieces = [body[at : at + _LONGEST_PIECE] for at in range(0, len(body), _LONGEST_PIECE)]
    # Offsets are those in the message, which follows the name in the first fragment.
    offsets = [max(0, index * _LONGEST_PIECE - len(name) - 1) for index in range(len(pieces))]
    return [
        _FRAGMENT_HEAD.pack(_FRAGMENT, number, len(message), offset, index, len(pieces)) + piece
        for index, (offset, piece) in enumerate(zip(offsets, pieces, strict=True))
    ]


def unpack_datagram(data: bytes) -> Whole | Fragment:
    """Decodes a datagram.

    Raises:
        LcmDecodeError: It is not a datagram of LCM.
    """
    if data[:4] == _SMALL and len(data) >= _SMALL_HEAD.size:
        _, sequence = _SMALL_HEAD.unpack_from(data)
        return Whole(sequence, *_split(data[_SMALL_HEAD.size :]))
    if data[:4] == _FRAGMENT and len(data) >= _FRAGMENT_HEAD.size:
        return _fragment(data)
    raise LcmDecodeError(f"{data[:4]!r} does not begin a datagram of LCM.")


def _fragment(data: bytes) -> Fragment:
    _, sequence, size, offset, number, total = _FRAGMENT_HEAD.unpack_from(data)
    channel = ""
    piece = data[_FRAGMENT_HEAD.size :]
    if number == 0:
        channel, piece = _split(piece)
    if number >= total or offset + len(piece) > size:
        raise LcmDecodeError(
            f"Fragment {number} of {total} with {len(piece)} bytes at {offset} does not fit a "
            f"message of {size} bytes."
        )
    return Fragment(sequence, size, offset, number, total, channel, piece)


def _split(body: bytes) -> tuple[str, bytes]:
    """Returns the channel, and the bytes after its name."""
    name, end, _ = body[: LONGEST_CHANNEL + 1].partition(b"\0")
    try:
        channel = name.decode()
    except UnicodeDecodeError as error:
        raise LcmDecodeError(f"The channel {name!r:.80} is not text.") from error
    if not end or not channel:
        raise LcmDecodeError("The channel has no name, or no end.")
    return channel, body[len(name) + 1 :]


Source = tuple[str, int]


@dataclass
class _Partial:
    """A message with missing fragments."""

    size: int
    count: int
    pieces: dict[int, Fragment] = field(default_factory=dict)
    taken: int = 0

    def joined(self) -> tuple[str, bytes] | None:
        """Returns channel and message, or None if the fragments leave gaps or overlap."""
        at = 0
        ordered = [self.pieces[number] for number in range(self.count)]
        for one in ordered:
            if one.offset != at:
                return None
            at += len(one.piece)
        return (
            (ordered[0].channel, b"".join(one.piece for one in ordered))
            if at == self.size
            else None
        )


class Reassembly:
    """Assembles messages of several publishers.

    Args:
        longest: Bytes of the longest message; longer ones are refused.
        most: Number of incomplete messages; for one more the oldest is given up.

    Attributes:
        refused: Number of refused fragments.
        given_up: Number of messages that remained incomplete.
    """

    def __init__(self, longest: int = 1 << 20, most: int = 8) -> None:
        self._longest = longest
        self._most = most
        self._partial: OrderedDict[tuple[Source, int], _Partial] = OrderedDict()
        self.refused = 0
        self.given_up = 0

    def take(self, source: Source, fragment: Fragment) -> tuple[str, bytes] | None:
        """Takes a publisher's fragment; returns channel and message after the last missing one."""
        if fragment.size > self._longest:
            self.refused += 1
            return None
        key = (source, fragment.sequence)
        partial = self._partial.get(key)
        if partial is not None and (partial.size, partial.count) != (fragment.size, fragment.total):
            self._give_up(key)  # The counter has gone round, or the publisher was started anew.
            partial = None
        if partial is None:
            if len(self._partial) >= self._most:
                self._give_up(next(iter(self._partial)))
            partial = self._partial[key] = _Partial(fragment.size, fragment.total)
        if fragment.number in partial.pieces:
            self.refused += 1
            return None
        partial.taken += len(fragment.piece)
        if partial.taken > partial.size:  # Overlapping fragments.
            self._give_up(key)
            return None
        partial.pieces[fragment.number] = fragment
        if len(partial.pieces) < partial.count:
            return None
        del self._partial[key]
        whole = partial.joined()
        self.given_up += whole is None
        return whole

    def _give_up(self, key: tuple[Source, int]) -> None:
        del self._partial[key]
        self.given_up += 1


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
        channels: Channels to receive; if None, all.

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
