"""Networks that lose, delay and reorder datagrams, in virtual time: the tests' own judge of arms.

Datagrams are lost or delayed on their way to all receivers alike, as netem does on an interface.
What moves an arm is the command that its controller takes at each step, and nothing else.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.real_robot.device_rig import DeviceRig

from stringline import ActionChunk, ArmDriver, Embodiment, SafetyLimits
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]
PERIOD = 0.01


@dataclass
class Weather:
    """What happens to datagrams, each by itself.

    Attributes:
        loss: Share that is lost.
        delay_s: Shortest and longest time on the way.
    """

    loss: float = 0.0
    delay_s: tuple[float, float] = (0.0, 0.0)


@dataclass
class Network:
    """Datagrams on their way, and the time."""

    seed: int
    weather: Weather = field(default_factory=Weather)
    now: float = 100.0
    _due: list[Any] = field(default_factory=list)
    _events: list[Any] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def send(self, deliver: Callable[[], None]) -> None:
        """Puts a datagram on its way; `deliver` hands it to its receivers."""
        if self._random.random() < self.weather.loss:
            return
        due = self.now + float(self._random.uniform(*self.weather.delay_s))
        heapq.heappush(self._due, (due, next(self._numbers), deliver))
        self._deliver()

    def _deliver(self) -> None:
        while self._due and self._due[0][0] <= self.now:
            heapq.heappop(self._due)[2]()

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Does something at a time."""
        heapq.heappush(self._events, (when, next(self._numbers), do))

    def pass_time(self, until: float, arrived: Callable[[], bool]) -> None:
        """Lets time pass until then, or until something has arrived."""
        self._deliver()
        while not arrived():
            following = min([one[0][0] for one in (self._due, self._events) if one], default=until)
            if following > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, following)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self._deliver()

    def clock(self) -> SimpleNamespace:
        """Returns what stands for the module `time`."""
        return SimpleNamespace(monotonic=lambda: self.now)

    def selector(self) -> SimpleNamespace:
        """Returns what stands for the module `select`."""

        def select(links: list[Any], *_: Any) -> None:
            timeout = float(_[-1])
            self.pass_time(self.now + timeout, lambda: any(link.waiting for link in links))

        return SimpleNamespace(select=select)


class Receiver:
    """The judge: which positions an arm is commanded, step by step.

    Attributes:
        velocity: Largest step as a share of the limit.
        acceleration: Largest change of the step as a share of the limit; an arm without a command
            stands, and its next step is one from rest.
        moved: Sum of all steps of the fastest joint, rad.
        stands: Steps without a new command.
    """

    def __init__(self, limits: SafetyLimits, joints: int = 7) -> None:
        self._step = limits.velocity[:joints] * PERIOD
        self._change = limits.acceleration[:joints] * PERIOD**2
        self._position: Vector | None = None
        self._moved = np.zeros(joints)
        self.velocity = self.acceleration = self.moved = 0.0
        self.steps = self.stands = 0

    def take(self, position: Vector | None) -> None:
        """Takes the position (J,) of a step; None: there was no new command."""
        self.steps += 1
        if position is None or self._position is None:
            self.stands += position is None
            self._moved = np.zeros_like(self._moved)
            self._position = self._position if position is None else position
            return
        moved = position - self._position
        self.velocity = max(self.velocity, float((np.abs(moved) / self._step).max()))
        change = np.abs(moved - self._moved) / self._change
        self.acceleration = max(self.acceleration, float(change.max()))
        self.moved += float(np.abs(moved).max())
        self._moved, self._position = moved, position

    def begins_anew(self) -> None:
        """Notes that the controller has begun a motion where its arm is."""
        self._position = None

    def assert_within_limits(self) -> None:
        """Fails if a step or a change of the step exceeded its limit."""
        assert self.velocity <= 1.0 + 1e-6
        assert self.acceleration <= 1.0 + 1e-6


class FarEnd:
    """What a rig needs of an emulator: nothing, since time passes on the network."""

    def begin(self, seed: int) -> None:
        """Does nothing."""

    def advance(self, writes: dict[str, int]) -> None:
        """Does nothing."""


class NetworkRig(DeviceRig):
    """A device loop whose time is that of a network."""

    def __init__(
        self, network: Network, driver: ArmDriver, body: Embodiment, limits: SafetyLimits
    ) -> None:
        self.network = network
        far_end: Any = FarEnd()
        super().__init__(far_end, driver, body, limits)

    def clock(self) -> float:
        return self.network.now

    def swing(self, seconds: float, hz: float = 0.25, by: float = 0.6) -> list[Reason]:
        """Swings the first joint, resets each fault after a while, and returns the faults."""
        faults: list[Reason] = []
        end, held = self.network.now + seconds, 0
        sent_s = -np.inf
        while self.network.now < end:
            if self.network.now > sent_s + 0.3:
                sent_s = self.network.now
                self.send(self._swing(hz, by))
            self.loop.observe(self.clock)
            self.loop.act(self.clock)
            held = held + 1 if self.state.mode is Mode.FAULT else 0
            if held == 1:
                faults.append(self.state.fault_reasons)
            if held == 60:
                self.session += 1
                self.loop.begin(self.session, self.clock, ~Reason(0))
                sent_s = -np.inf
        return faults

    def brake(self) -> None:
        """Brings the arms to rest."""
        self.loop.brake()
        while not self.loop.at_rest:
            self.loop.observe(self.clock)
            self.loop.act(self.clock)

    def _swing(self, hz: float, by: float) -> ActionChunk:
        due = self.network.now + 0.02 * np.arange(50, dtype=np.float64)
        way = np.tile(self.body.home, (50, 1))
        way[:, 0] += by * np.sin(2 * np.pi * hz * due)
        return ActionChunk(due, way.astype(np.float32))
