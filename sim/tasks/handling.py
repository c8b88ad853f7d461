"""How props are handled on the way to success: strict criteria count what is put down, not dropped.

A separate module, because its constants are part of the digests of strict criteria only.
"""

from collections.abc import Mapping

from stringline.sim.tasks.success import ContactState

# m/s downwards, of a prop that no arm touches. Control periods of 20 ms show the last speed before
# a contact to within 0.2 m/s. Dishes, blocks and parts: a free fall of 5 cm. Experts release them
# less than 2 cm above their place, which gives 0.6 m/s at most.
DROP_SPEED = 1.0
# Food, pens and boxes into containers: a free fall of 20 cm, because grippers have to open above
# walls of up to 11 cm.
DROP_SPEED_INTO_CONTAINER = 2.0


class Handling:
    """The props of an episode that were dropped and have not been lifted since.

    Args:
        drop_speed: Speed downwards, m/s, above which a prop that no arm touches was dropped.
    """

    def __init__(self, drop_speed: float = DROP_SPEED) -> None:
        self._drop_speed = drop_speed
        self._dropped: set[str] = set()

    def update(self, contacts: ContactState, falling: Mapping[str, float]) -> None:
        """Takes the speeds of the props downwards, m/s, after a control period.

        A dropped prop is handled well again once both pads of a gripper hold it and it touches
        nothing but arms.
        """
        for prop, speed in falling.items():
            if contacts.by_any_arm([prop]):
                if contacts.held_by_any(prop) and contacts.touches_arms_only(prop):
                    self._dropped.discard(prop)
            elif speed > self._drop_speed:
                self._dropped.add(prop)

    @property
    def dropped(self) -> bool:
        """Whether any prop was dropped and not lifted since."""
        return bool(self._dropped)
