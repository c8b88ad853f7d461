"""What a client may ask of an emulator: the same of every one, and what only some can do."""

from collections.abc import Callable, Mapping

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.real_robot.emulators.plants.plant import Plant
from stringline.real_robot.ipc.array_messages import Header, Json, options_in

COMMON = ("begin", "advance", "frames", "outcome", "fault")


class Operations:
    """Does what the header of a message asks for, and returns the answer; handed to a `ControlSocket`.

    Args:
        plant: The world, whose outcome is told whenever it has gone on.
        begin: Begins the episode of a seed, with options.
        advance: Goes on by one period once so many writes of a driver have reached each arm.
        fault: Begins or ends a fault of an arm, by its name; the number is that of a servo, or a
            count.
        more: What else this emulator can do, by name.
    """

    def __init__(
        self,
        plant: Plant,
        *,
        begin: Callable[[int, Mapping[str, float]], None],
        advance: Callable[[Mapping[str, int]], None],
        fault: Callable[[str, str, int], None],
        **more: Callable[[Header], Header],
    ) -> None:
        self._plant = plant
        self._more = more
        self._begin = begin
        self._advance = advance
        self._fault = fault

    def __call__(self, header: Header) -> tuple[Header, dict[str, Array]]:
        """Obeys.

        Raises:
            ValueError: There is no such operation, or it is refused.
            KeyError: The header lacks something.
        """
        operation = str(header["operation"])
        match operation:
            case "begin":
                self._begin(int(str(header["seed"])), options_in(header))
            case "advance":
                self._advance(_counts(header))
            case "frames":
                return {}, self._plant.frames()
            case "outcome":
                pass
            case "fault":
                self._fault(
                    str(header["arm"]), str(header["kind"]), int(str(header.get("servo", 0)))
                )
                return {}, {}
            case _ if operation in self._more:
                return self._more[operation](header), {}
            case _:
                raise unknown_name("operation", operation, (*COMMON, *self._more))
        outcome: Header = dict(self._plant.outcome())
        return outcome, {}


def _counts(header: Header) -> dict[str, int]:
    writes: Json = header["writes"]
    return (
        {arm: int(str(count)) for arm, count in writes.items()} if isinstance(writes, dict) else {}
    )
