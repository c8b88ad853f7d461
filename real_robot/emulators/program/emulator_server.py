"""The loop of an emulator: one client, which controls the world, and the drivers of the arms.

The client and camera processes have a socket each. The world is that of a task, or one where joints
only follow their targets. A metronome keeps the periods of controllers by the host's clock.
"""

import json
import logging
import math
import os
import select
import socket
import stat
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.emulators.plants.plant import (
    FirstOrderPlant,
    HeldObjects,
    Plant,
    TestPattern,
)
from stringline.real_robot.emulators.program.emulator_settings import KukaSettings, WorldSettings
from stringline.real_robot.ipc.array_messages import Header, options_in, receive, send
from stringline.real_robot.safety.limits import kuka_embodiment

# A late emulator makes up for that much and skips the rest, as a real world would have gone on.
MOST_LAG_S = 0.25


class Metronome:
    """Periods of several controllers, each with its own phase.

    After a late period the next ones follow at twice the rate until the time is made up for. They
    never follow at once, since clients need time to answer, as a real controller allows.

    Args:
        period_s: Seconds between two periods of an arm.
        phase: Share of a period by which each arm is behind the one before it.
        now: Time of the first period, seconds of the clock of `take`.
        most_lag_s: Longest time that is made up for.

    Attributes:
        skipped: Number of periods of each arm that the last call of `take` skipped.
    """

    def __init__(
        self,
        arms: Sequence[str],
        period_s: float,
        phase: float,
        now: float,
        most_lag_s: float = MOST_LAG_S,
    ) -> None:
        self._period_s = period_s
        self._most_lag_s = most_lag_s
        self._due = {arm: now + index * phase * period_s for index, arm in enumerate(arms)}
        self._not_before = dict(self._due)
        self.skipped = dict.fromkeys(arms, 0)

    def take(self, now: float) -> list[str]:
        """Returns the arms whose period is due, and counts it as done."""
        found = [arm for arm, due in self._not_before.items() if now >= due]
        for arm in found:
            due = self._due[arm] + self._period_s
            self.skipped[arm] = max(0, math.ceil((now - self._most_lag_s - due) / self._period_s))
            self._due[arm] = max(due, now - self._most_lag_s)
            self._not_before[arm] = max(self._due[arm], now + self._period_s / 2)
        return found

    @property
    def next(self) -> float:
        """Time of the next period."""
        return min(self._not_before.values())


log = logging.getLogger(__name__)

_INPUT = 0


class Served(Protocol):
    """A connection from which others are read."""

    def fileno(self) -> int:
        """Descriptor to wait on."""
        ...

    def serve(self) -> None:
        """Handles the data that have arrived."""
        ...


def serve_ready(waiting: Sequence[Served], timeout_s: float | None) -> None:
    """Waits for data, at most that long (if None, for ever), and serves in the order given."""
    for one in select.select(waiting, [], [], timeout_s)[0]:
        one.serve()


class ControlSocket:
    """Accepts one client, and answers its requests until it disconnects.

    The process that started the program may end before it has connected. So if the program's input
    is a pipe, its end means the end of that process; `Emulator` holds the other end. Inputs of
    other kinds, such as a terminal, are ignored.

    Args:
        answer: Executes the request of a header and returns the answer; the client receives the
            message of its ValueError, KeyError or TypeError.

    Attributes:
        left: Whether the client has disconnected, or its process has ended before.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Header], tuple[Header, dict[str, Array]]],
        owner: int = _INPUT,
    ) -> None:
        self._listener = listener
        self._answer_to = answer
        self._client: socket.socket | None = None
        self._waiting = select.epoll()
        self._waiting.register(listener, select.EPOLLIN)
        if is_pipe(owner):
            self._waiting.register(owner, 0)  # Its end is reported all the same.
        self.left = False

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return (self._client or self._waiting).fileno()

    def serve(self) -> None:
        """Accepts the client, or answers it, or notices the end of its process."""
        if self._client is not None:
            self._answer(self._client)
            return
        come = [descriptor for descriptor, _ in self._waiting.poll(0)]
        if self._listener.fileno() in come:
            self._client, _ = self._listener.accept()
        elif come:
            log.warning("The process that started the emulator has ended without connecting to it.")
            self.left = True

    def _answer(self, client: socket.socket) -> None:
        try:
            header, _ = receive(client)
            try:
                send(client, *self._answer_to(header))
            except (ValueError, KeyError, TypeError) as error:
                send(client, {"error": str(error)})
        except (ConnectionError, ValueError) as error:
            log.debug("The client left: %s", error)
            client.close()
            self.left = True


def is_pipe(descriptor: int) -> bool:
    """Returns whether a descriptor is the end of a pipe; False if it is not open."""
    with suppress(OSError):
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    return False


def free_udp_ports(count: int) -> list[int]:
    """Returns different ports of the loopback interface, which other programs may still open."""
    with ExitStack() as stack:
        # All are open at once, so that they differ.
        taken = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


@contextmanager
def local_sockets(*names: str) -> Iterator[list[socket.socket]]:
    """Opens listening sockets in a temporary folder; both are removed afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stringline-")))
        opened = [
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in names
        ]
        for name, one in zip(names, opened, strict=True):
            one.bind(str(folder / name))
            one.listen()
        yield opened


def announce(ports: Mapping[str, str], control: socket.socket, images: socket.socket) -> None:
    """Prints the addresses of ports and sockets as one line of JSON."""
    addresses = {
        "ports": dict(ports),
        "socket": control.getsockname(),
        "images": images.getsockname(),
    }
    sys.stdout.write(json.dumps(addresses) + "\n")
    sys.stdout.flush()


def task_world(
    settings: WorldSettings, cameras: Sequence[str], images: socket.socket | None
) -> tuple[Embodiment, Plant]:
    """Returns the embodiment and the world of a task.

    `images` is a socket of camera processes, as `TaskPlant` takes it; ignored in lock-step.
    """
    # MuJoCo takes a second to load, and the first-order plant does without it.
    from stringline.real_robot.emulators.plants.task_plant import TaskPlant

    model: Any = settings.robot_model  # The plant checks the name.
    plant = TaskPlant(
        settings.task,
        cameras=cameras,
        image_size=settings.image_size,
        device_hz=settings.device_hz,
        frame_hz=settings.frame_hz,
        time_limit_s=settings.time_limit_s,
        robot_model=model,
        images=None if settings.lock_step else images,
    )
    return plant.embodiment, plant


def first_order_world(
    embodiment: Embodiment, settings: WorldSettings, pattern: TestPattern | None = None
) -> FirstOrderPlant:
    """Returns joints that follow their targets without a world."""
    return FirstOrderPlant(
        embodiment,
        period_s=1.0 / settings.device_hz,
        time_limit_s=settings.time_limit_s,
        pattern=pattern,
    )


def kuka_world(
    settings: KukaSettings, images: socket.socket | None = None
) -> tuple[Embodiment, Plant]:
    """Returns the embodiment and the world of KUKA arms; see `task_world`."""
    if settings.task:
        return task_world(settings, settings.cameras or (), images)
    embodiment = kuka_embodiment(settings.arms)
    return embodiment, first_order_world(embodiment, settings)


_WRITES_TIMEOUT_S = 2.0
_COMMON = ("begin", "advance", "frames", "outcome", "fault", "put", "carried")


class EmulatorServer(ABC):
    """Serves one client and any driver until the client leaves.

    Attributes:
        WRITE: Name of a driver's message that moves an arm, for error messages.
    """

    WRITE: ClassVar[str]

    def __init__(self, plant: Plant, listener: socket.socket) -> None:
        self._plant = plant
        self._control = ControlSocket(listener, self.answer)

    @property
    @abstractmethod
    def ports(self) -> dict[str, str]:
        """Port that a driver opens, by arm."""

    @property
    @abstractmethod
    def _endpoints(self) -> Sequence[Served]:
        """Connections to drivers."""

    @abstractmethod
    def _run_due(self) -> float | None:
        """Runs the periods that are due; returns seconds until the next, or None in lock-step."""

    @abstractmethod
    def _writes(self) -> Mapping[str, tuple[Served, int]]:
        """Returns the endpoint of each connected arm, and its writes in this episode."""

    @abstractmethod
    def _step(self) -> None:
        """Advances everything by one period of lock-step."""

    @abstractmethod
    def _begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins the episode of a seed."""

    @abstractmethod
    def _fault(self, arm: str, kind: str, number: int) -> None:
        """Begins or ends a fault of an arm; the number is that of a servo, or a count."""

    @abstractmethod
    def _close(self) -> None:
        """Closes the endpoints."""

    @property
    def _operations(self) -> Mapping[str, Callable[[Header], Header]]:
        """Operations of this emulator beside those that all have, by name."""
        return {}

    def run(self) -> None:
        """Serves until the client leaves, then closes everything."""
        try:
            while not self._control.left:
                timeout_s = self._run_due()
                serve_ready([*self._endpoints, self._control], timeout_s)
        finally:
            self._close()
            self._plant.close()

    def answer(self, header: Header) -> tuple[Header, dict[str, Array]]:
        """Executes the operation of a client's message, and returns its answer.

        Raises:
            ValueError: The operation is unknown, or is refused.
            KeyError: The header lacks an argument.
        """
        operation = str(header["operation"])
        if operation in self._operations:
            return self._operations[operation](header), {}
        match operation:
            case "begin":
                self._begin(int(str(header["seed"])), options_in(header))
            case "advance":
                self._advance_after(_counts(header))
            case "frames":
                return {}, self._plant.frames()
            case "outcome":
                pass
            case "fault":
                number = int(str(header.get("servo", 0)))
                self._fault(str(header["arm"]), str(header["kind"]), number)
                return {}, {}
            case "put":
                self._objects().put(str(header["arm"]), float(str(header["opening"])))
                return {}, {}
            case "carried":
                return {"carried": self._objects().carried(str(header["arm"]))}, {}
            case _:
                raise unknown_name("operation", operation, (*_COMMON, *self._operations))
        outcome: Header = dict(self._plant.outcome())
        return outcome, {}

    def _objects(self) -> HeldObjects:
        if not isinstance(self._plant, FirstOrderPlant):
            raise ValueError("Objects are put into first-order plants; tasks have their own.")
        return self._plant.objects

    def _advance_after(self, wanted: Mapping[str, int]) -> None:
        """Advances by one period once each arm has received as many writes as its driver sent."""
        deadline = time.monotonic() + _WRITES_TIMEOUT_S
        while (late := self._late(wanted)) and time.monotonic() < deadline:
            serve_ready(list(late.values()), 0.05)
        if late:
            raise ValueError(
                f"No new {self.WRITE} has reached {', '.join(late)} within {_WRITES_TIMEOUT_S} s."
            )
        self._step()

    def _late(self, wanted: Mapping[str, int]) -> dict[str, Served]:
        return {
            arm: endpoint
            for arm, (endpoint, count) in self._writes().items()
            if count < wanted.get(arm, 0)
        }


def _counts(header: Header) -> dict[str, int]:
    writes = header["writes"]
    return (
        {arm: int(str(count)) for arm, count in writes.items()} if isinstance(writes, dict) else {}
    )
