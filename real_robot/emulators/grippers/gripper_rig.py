"""The emulated grippers of all arms of a cell, at one multicast group."""

from collections.abc import Mapping

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.grippers.emulated_wsg import EmulatedWsg
from stringline.real_robot.ipc.array_messages import Json


class GripperBench:
    """Grippers with a wire of their own, beside emulated arms.

    Args:
        arms: Names of those that have a gripper.
        settings: As the drivers on the other end have them: addresses and channels.
        period_s: Between two ticks.

    Attributes:
        grippers: By arm.

    Raises:
        ValueError: The group cannot be joined.
    """

    def __init__(self, arms: tuple[str, ...], settings: WsgGripper, *, period_s: float) -> None:
        self._settings = settings
        self._period_s = period_s
        self._arms = arms
        self._channels = {settings.channels(arm)[0]: arm for arm in arms}
        self._link = LcmLink(
            settings.address, settings.interface, settings.ttl, frozenset(self._channels)
        )
        self._link.open()
        self._voices = {arm: self._voice() for arm in arms}
        self.reboot()

    def _voice(self) -> LcmLink:
        """Returns a place to speak from: a driver has one for its gripper, and another one when it is started again."""
        settings = self._settings
        link = LcmLink(settings.address, settings.interface, settings.ttl, frozenset())
        link.open()
        return link

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._link.fileno()

    def serve(self) -> None:
        """Takes what has come in."""
        for message in self._link.receive():
            self.grippers[self._channels[message.channel]].receive(message.payload)

    def reboot(self) -> None:
        """Switches all grippers off and on."""
        self.grippers = {arm: EmulatedWsg(period_s=self._period_s) for arm in self._arms}

    def begin(self) -> None:
        """Starts all grippers anew in a new world."""
        for gripper in self.grippers.values():
            gripper.begin()

    def tick(self) -> None:
        """Goes on by a period, and tells what is to be told."""
        for arm, gripper in self.grippers.items():
            self._publish(arm, gripper.tick())

    def tell(self) -> None:
        """Tells the state of all, whether or not it is due."""
        for arm, gripper in self.grippers.items():
            self._publish(arm, gripper.tell())

    def _publish(self, arm: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._voices[arm].publish(self._settings.channels(arm)[1], payload)

    def fault(self, arm: str, kind: str, count: int) -> None:
        """Begins or ends a fault of one gripper; see `EmulatedWsg.fault`."""
        if arm not in self.grippers:
            raise unknown_name("arm with a gripper", arm, self.grippers)
        self.grippers[arm].fault(kind, count)
        if kind == "restart":
            old = self._voices[arm]
            self._voices[arm] = self._voice()
            old.close()

    def report(self) -> Mapping[str, Json]:
        """Returns how each gripper fared, by arm."""
        return {arm: gripper.report() for arm, gripper in self.grippers.items()}

    def close(self) -> None:
        """Leaves the group."""
        for link in (self._link, *self._voices.values()):
            link.close()
