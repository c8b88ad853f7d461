"""The emulated grippers of all arms of a cell, which have a connection of their own: LCM."""

from collections.abc import Mapping

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.grippers.emulated_wsg import EmulatedWsg
from stringline.real_robot.emulators.program.emulator_settings import KukaSettings
from stringline.real_robot.ipc.array_messages import Json


class GripperRig:
    """Grippers in one multicast group, beside emulated arms.

    Args:
        settings: Addresses and channels, as the drivers at the other end have them.
    """

    def __init__(self, arms: tuple[str, ...], settings: WsgGripper, *, period_s: float) -> None:
        self._settings = settings
        self._period_s = period_s
        self._arms = arms
        self._channels = {settings.channels(arm)[0]: arm for arm in arms}
        self._link = self._open(frozenset(self._channels))
        self._publishers = {arm: self._open(frozenset()) for arm in arms}
        self.reboot()

    def _open(self, channels: frozenset[str]) -> LcmLink:
        settings = self._settings
        link = LcmLink(settings.address, settings.interface, settings.ttl, channels)
        link.open()
        return link

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._link.fileno()

    def serve(self) -> None:
        """Receives the commands that have arrived."""
        for message in self._link.receive():
            self.grippers[self._channels[message.channel]].receive(message.payload)

    def reboot(self) -> None:
        """Switches all grippers off and on."""
        self.grippers = {arm: EmulatedWsg(period_s=self._period_s) for arm in self._arms}

    def begin(self) -> None:
        """Starts all grippers again in a new world."""
        for gripper in self.grippers.values():
            gripper.begin()

    def tick(self) -> None:
        """Advances by a period, and publishes the states that are due."""
        for arm, gripper in self.grippers.items():
            self._publish(arm, gripper.tick())

    def publish(self) -> None:
        """Publishes the state of all, whether or not it is due."""
        for arm, gripper in self.grippers.items():
            self._publish(arm, gripper.publish())

    def _publish(self, arm: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._publishers[arm].publish(self._settings.channels(arm)[1], payload)

    def fault(self, arm: str, kind: str, count: int) -> None:
        """Begins or ends a fault of one gripper; see `EmulatedWsg.fault`."""
        if arm not in self.grippers:
            raise unknown_name("arm with a gripper", arm, self.grippers)
        self.grippers[arm].fault(kind, count)
        if kind == "restart":
            # A driver that is started again publishes from another port.
            old = self._publishers[arm]
            self._publishers[arm] = self._open(frozenset())
            old.close()

    def report(self) -> Mapping[str, Json]:
        """Returns the report of each gripper, by arm."""
        return {arm: gripper.report() for arm, gripper in self.grippers.items()}

    def close(self) -> None:
        """Leaves the group."""
        for link in (self._link, *self._publishers.values()):
            link.close()


def gripper_rig_of(
    settings: KukaSettings, arms: tuple[str, ...], period_s: float
) -> GripperRig | None:
    """Returns the grippers of an emulator, connected; None if they belong to the controllers."""
    if settings.gripper != WSG_LCM:
        return None
    wsg = {
        "address": settings.gripper_address,
        "interface": settings.gripper_interface,
        "command_channel": settings.gripper_commands,
        "status_channel": settings.gripper_states,
    }
    gripper = gripper_settings({"transport": WSG_LCM, WSG_LCM: wsg}, arms)
    return GripperRig(arms, gripper, period_s=period_s) if isinstance(gripper, WsgGripper) else None
