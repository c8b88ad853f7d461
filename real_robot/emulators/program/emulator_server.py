"""The loop of an emulator: one client, which controls the world, and the drivers of the arms."""

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.real_robot.emulators.plants.held_objects import HeldObjects
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant, Plant
from stringline.real_robot.emulators.program.control import ControlSocket, Served, serve_ready
from stringline.real_robot.ipc.array_messages import Header, options_in

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
